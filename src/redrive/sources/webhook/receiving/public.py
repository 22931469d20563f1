"""
The ASGI side of receiving: `POST /{source}`.

Owns the way of one request from the server to the intake: path, method, limits, then raw bytes. Knows no signature and
no store; never logs what a sender wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.failpoints import hit
from redrive.sources.webhook.counts import Result
from redrive.sources.webhook.receiving import answers
from redrive.sources.webhook.receiving.answers import Answer, respond
from redrive.sources.webhook.receiving.body import Bodies, Gone, announced
from redrive.sources.webhook.receiving.intake import Arrived, Intake
from redrive.sources.webhook.receiving.paths import TIMED, steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

    from redrive.sources.webhook.checking import Checker
    from redrive.sources.webhook.receiving.answers import Send
    from redrive.sources.webhook.receiving.body import Receive

_RESULTS = {413: Result.TOO_LARGE, 408: Result.TOO_SLOW, 431: Result.TOO_LARGE, 503: Result.UNAVAILABLE}


class Receiver:
    """Answers requests to sources."""

    def __init__(self, checkers: Mapping[str, Checker], intake: Intake, bodies: Bodies) -> None:
        self._checkers, self._intake, self.bodies = checkers, intake, bodies

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        steps = steps_of(scope)
        checker = self._checkers.get(steps[0]) if len(steps) == 1 else None
        if checker is None:
            await respond(send, answers.NOT_FOUND, head=scope["method"] == "HEAD")
        elif scope["method"] != "POST":
            await respond(send, answers.not_allowed("POST"), head=scope["method"] == "HEAD")
        else:
            await self._post(checker, scope, receive, send)

    async def _post(self, checker: Checker, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        with self.bodies.room() as room:
            headers = [(name.lower(), value) for name, value in scope["headers"]]
            limit = self._intake.limit(checker.source)
            try:
                body = self.refuse(checker, headers, announced(headers)) or await self.bodies.read(
                    receive, limit, room, is_timed=TIMED in scope
                )
            except Gone:
                return
            if isinstance(body, Answer):
                self.note(checker, body)
                answer = body
            else:
                answer = await self._intake.take(checker, Arrived(headers, scope.get("query_string", b""), body))
        await respond(send, answer)
        hit("inbox.answered")

    def refuse(self, checker: Checker, headers: Sequence[tuple[bytes, bytes]], length: float) -> Answer | None:
        """Return the answer to headers that say enough, before a byte of the body, of *length* bytes, is read."""
        return self.bodies.refuse(headers, length, self._intake.limit(checker.source))

    def note(self, checker: Checker, answer: Answer) -> None:
        """Count a request that was refused before it was complete."""
        self._intake.note(checker.source, _RESULTS[answer.status])
