"""
Requests to sources, straight from the parser to the intake.

Owns the short way of a plain request: a POST to a source whose length is given and small. It needs no ASGI message and
no task before its last byte is here, and its answer is written at once: half of what the way over ASGI costs. Every
other request goes that way. Limits, intake and answers are the same on both. Knows no signature and no store.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from redrive.failpoints import hit
from redrive.sources.webhook.receiving.answers import BUSY, CLOSE, FAILED, written
from redrive.sources.webhook.receiving.body import announced
from redrive.sources.webhook.receiving.intake import Arrived
from redrive.sources.webhook.serving.protocol import BoundedProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redrive.sources.webhook.checking import Checker
    from redrive.sources.webhook.inbox import Inbox
    from redrive.sources.webhook.receiving.answers import Answer
    from redrive.sources.webhook.receiving.body import Room
    from redrive.sources.webhook.receiving.public import Receiver

_SMALL = 65_536  # bytes of a body
_NONE = asyncio.Event()  # what no task of a straight request waits for
_EAGER: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}


def straight(inbox: Inbox, routes: Mapping[bytes, Checker]) -> Callable[..., StraightProtocol]:
    """Return what makes a protocol that takes requests to *routes*, which are paths, straight to *inbox*."""

    def make(*given: Any, **named: Any) -> StraightProtocol:
        made = StraightProtocol(*given, **named)
        made.inbox, made.receiver, made.routes = inbox, inbox.receiver, routes
        return made

    return make


class StraightRequest:
    """One request on the short way; uvicorn sees it as it sees its own `RequestResponseCycle`."""

    message_event = _NONE
    response_started = response_complete = disconnected = False
    is_whole = False  # its last byte is here

    def __init__(self, checker: Checker, query: bytes, room: Room, *, keep_alive: bool) -> None:
        self.checker, self.query, self.room, self.keep_alive = checker, query, room, keep_alive
        self.parts: list[bytes] = []

    def whole(self, headers: list[tuple[bytes, bytes]]) -> Arrived:
        """Return it with its *headers*, now that its body is here."""
        self.is_whole = True
        return Arrived(headers, self.query, self.parts[0] if len(self.parts) == 1 else b"".join(self.parts))


class StraightProtocol(BoundedProtocol):
    """One connection of senders; `straight` says where its requests go."""

    inbox: Inbox
    receiver: Receiver
    routes: Mapping[bytes, Checker]
    cycle: Any

    def on_headers_complete(self) -> None:
        """Choose the way."""
        request = self._straight()
        if request is None:
            super().on_headers_complete()
        else:
            self._in_head, self.cycle = False, request

    def _straight(self) -> StraightRequest | None:
        """Return the request if it is a plain one to a source, and no earlier one of the connection is under way."""
        path, _, query = self.url.partition(b"?")
        checker, parser = self.routes.get(path), self.parser
        if (
            checker is None
            or parser.get_method() != b"POST"
            or parser.get_http_version() != "1.1"
            or parser.should_upgrade()
            or self.expect_100_continue
            or b"#" in query
            or not (self.cycle is None or self.cycle.response_complete)
            or self.transport.is_closing()
            or not 0 < (length := announced(self.headers)) <= _SMALL
            or self.receiver.refuse(checker, self.headers, length) is not None
        ):
            return None
        return StraightRequest(checker, query, self.receiver.bodies.room(), keep_alive=parser.should_keep_alive())

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        request = self.cycle
        if type(request) is not StraightRequest:
            super().on_body(body)
        elif not request.response_complete:
            request.parts.append(body)
            request.room.take(len(body))
            if self.receiver.bodies.are_too_many:
                request.room.give_back()
                self.receiver.note(request.checker, BUSY)
                self._answer(request, BUSY)

    def on_message_complete(self) -> None:
        """Let the intake have the request."""
        request = self.cycle
        if type(request) is not StraightRequest:
            super().on_message_complete()
            return
        self.stop_clock()
        if not request.response_complete:
            task = asyncio.Task(self._take(request, request.whole(self.headers)), loop=self.loop, **_EAGER)
            if not task.done():
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)

    async def _take(self, request: StraightRequest, arrived: Arrived) -> None:
        try:
            answer = await self.inbox.take(request.checker, arrived)
        except (Exception, asyncio.CancelledError):
            self.logger.exception("a request could not be taken")
            answer = FAILED
        request.room.give_back()
        if self.flow.write_paused:
            await self.flow.drain()
        self._answer(request, answer)
        hit("inbox.answered")

    def _answer(self, request: StraightRequest, answer: Answer) -> None:
        if request.disconnected:
            return
        keep = request.keep_alive and CLOSE not in answer.headers
        self.transport.write(written(answer, self.server_state.default_headers, keep_alive=keep))
        request.response_started = request.response_complete = True
        if not keep:
            self.transport.close()
        self.on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a request of which the rest will not come."""
        request = self.cycle
        super().connection_lost(exc)
        if type(request) is StraightRequest and not request.is_whole:
            request.room.give_back()
