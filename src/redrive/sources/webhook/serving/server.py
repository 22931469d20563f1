"""
`redrive inbox run`: two addresses, one worker, an orderly end.

Owns the order in which it ends: not ready, no new connections, requests under way finish, the worker drains, and only
then does the admin address fall silent. Knows no signature and no command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from typing import TYPE_CHECKING, Any

import uvicorn

from redrive.errors import SettingsError
from redrive.signals.log import write
from redrive.sources.webhook.receiving.answers import NOT_FOUND, respond
from redrive.sources.webhook.receiving.paths import MOUNT, TIMED, steps_of
from redrive.sources.webhook.serving.protocol import BoundedProtocol, bounded
from redrive.sources.webhook.serving.straight import straight

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping

    from redrive.sources.webhook.checking import Checker
    from redrive.sources.webhook.inbox import Inbox

_FINISH = 10  # seconds for requests under way
_KEEP_ALIVE = 5  # seconds for which an idle connection of a sender stays open
_LAST_PORT = 65_535
_MOUNTED = 2  # steps of /hooks/{source}


class InboxServer(uvicorn.Server):
    """A uvicorn server that leaves signals to others: two of them share one process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class PublicSide:
    """`POST /hooks/{source}`, and `POST /{source}` for sources of the document's own form."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._plain = {name for name, source in inbox.sources.items() if source.preset == "plain"}

    @property
    def routes(self) -> dict[bytes, Checker]:
        """The paths of sources, as most senders write them."""
        checkers = self._inbox.checkers
        mounted = {f"/{MOUNT}/{name}".encode(): checker for name, checker in checkers.items()}
        return mounted | {f"/{name}".encode(): checkers[name] for name in self._plain}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Answer one request."""
        steps = steps_of(scope) if scope["type"] == "http" else []
        if len(steps) == _MOUNTED and steps[0] == MOUNT:
            await self._inbox({**scope, "root_path": f"/{MOUNT}", TIMED: True}, receive, send)
        elif len(steps) == 1 and steps[0] in self._plain:
            await self._inbox({**scope, TIMED: True}, receive, send)
        elif steps:
            await respond(send, NOT_FOUND)


def listen(address: str) -> socket.socket:
    """Return a socket that listens on HOST:PORT; raise SettingsError if that cannot be."""
    host, _, port = address.rpartition(":")
    if not (port.isdecimal() and int(port) <= _LAST_PORT):
        raise SettingsError([f"cannot listen on {address!r}: it must be like 127.0.0.1:8080"])
    family = socket.AF_INET6 if ":" in host.strip("[]") else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), int(port)), family=family, backlog=2_048)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its host is no name"
        raise SettingsError([f"cannot listen on {address!r}: {why}; give a free HOST:PORT"]) from None


async def serve(inbox: Inbox, public: socket.socket, admin: socket.socket, stop: asyncio.Event) -> None:
    """Serve until *stop* is set, or the worker ends; raise what ended the worker."""
    side = PublicSide(inbox)
    senders = straight(inbox, side.routes)
    async with _running(_server(inbox.admin, inbox, BoundedProtocol), admin), inbox.lifespan():  # noqa: SIM117 - the order matters
        async with _running(_server(side, inbox, senders), public):
            write("info", "redrive.inbox.started", {"address": name_of(public), "admin": name_of(admin)})
            await _first(stop, inbox.worker)
            inbox.leave()
    if inbox.worker is not None and (error := inbox.worker.exception()) is not None:
        raise error


def stop_on_signals(stop: asyncio.Event, app: Any) -> None:
    """Let SIGTERM and SIGINT set *stop*; a second one lets the worker give back what runs."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: app.stop() if stop.is_set() else stop.set())


def name_of(listening: socket.socket) -> str:
    """Return the HOST:PORT of a socket."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _server(app: Any, inbox: Inbox, protocol: Callable[..., BoundedProtocol]) -> InboxServer:
    config = inbox.config
    largest = max((source.max_body or 0 for source in inbox.sources.values()), default=0)
    http: Any = bounded(
        protocol, seconds=config.receive_seconds, max_headers=config.max_headers, max_body=max(config.max_body, largest)
    )
    return InboxServer(
        uvicorn.Config(
            app,
            http=http,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # a line for each request that is no HTTP would let strangers flood the log
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_FINISH,
        )
    )


@contextlib.asynccontextmanager
async def _running(server: InboxServer, listening: socket.socket) -> AsyncIterator[None]:
    task = asyncio.create_task(server.serve([listening]))
    try:
        while not (server.started or task.done()):  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.001)
        yield
    finally:
        server.should_exit = True
        await task


async def _first(stop: asyncio.Event, worker: asyncio.Task[bool] | None) -> None:
    """Return when *stop* is set or *worker* has ended."""
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait({waiting, worker} if worker is not None else {waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
