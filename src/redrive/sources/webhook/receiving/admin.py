"""
What operators ask the inbox: health, readiness, metrics, and the status of events.

Owns a second ASGI application for an address that senders do not reach. It shows ids, statuses, tries and times; never
payload, headers, error text or secrets. Changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from redrive.errors import RedriveError, SettingsError
from redrive.sources.webhook.events.identity import key_of, letter_id
from redrive.sources.webhook.receiving.answers import Answer, json_answer, not_allowed, refusal, respond
from redrive.sources.webhook.receiving.openapi import document
from redrive.sources.webhook.receiving.paths import MOUNT, steps_of
from redrive.sources.webhook.status import view_of
from redrive.stores.spooling import spool_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping

    from redrive.sources.webhook.counts import InboxCounts
    from redrive.sources.webhook.port import App
    from redrive.sources.webhook.receiving.answers import Send
    from redrive.sources.webhook.source import Source

_UNKNOWN = refusal(404, "there is no such event or page")
_PATIENCE = 5.0  # seconds that readiness waits for the store


class Admin:
    """Answers operators; *reasons* says why the inbox is not ready."""

    def __init__(
        self, app: App, sources: Mapping[str, Source], counts: InboxCounts, reasons: Callable[[], list[str]]
    ) -> None:
        self._app, self._sources, self._counts, self._reasons = app, sources, counts, reasons
        self._page: Callable[[], Awaitable[tuple[bytes, bytes]]] | None = None

    async def __call__(self, scope: MutableMapping[str, Any], _receive: Any, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, not_allowed("GET", "HEAD"))
            return
        try:
            answer = await self._answer(steps_of(scope), scope.get("query_string", b""))
        except (RedriveError, TimeoutError):
            answer = refusal(503, "the store cannot be asked now")
        await respond(send, answer, head=scope["method"] == "HEAD")

    async def _answer(self, steps: list[str], query: bytes) -> Answer:
        match steps:
            case ["health"]:
                return await self._health()
            case ["ready"]:
                return await self._ready()
            case ["metrics"]:
                return await self._metrics()
            case ["openapi.json"]:
                return json_answer(200, document(self._sources.values(), version("redrive")))
            case ["sources"]:
                return json_answer(200, {"sources": self.describe()})
        below = steps[1:] if steps[0] == MOUNT else steps
        return await self._event(below, query)

    async def _event(self, steps: list[str], query: bytes) -> Answer:
        source = self._sources.get(steps[0]) if steps else None
        if source is None or len(steps) > 2:  # noqa: PLR2004 - the source and an id
            return _UNKNOWN
        if len(steps) == 1:
            keys = [value for name, value in parse_qsl(query.decode("latin-1")) if name == "idempotency_key"]
            wanted = letter_id(key_of(source.name, keys[0])) if len(keys) == 1 else None
        else:
            wanted = steps[1]
        await self._app.open()
        letter = await self._app.store.get(wanted) if wanted else None
        is_its = letter is not None and letter.origin == f"webhook:{source.name}"
        return json_answer(200, view_of(letter, source.name)) if letter is not None and is_its else _UNKNOWN

    async def _health(self) -> Answer:
        """Say that the process lives, and what waits in its spool; a store that is away is no reason to kill it."""
        spool = spool_of(self._app.store)
        if spool is None:
            return json_answer(200, {"status": "ok"})
        async with asyncio.timeout(_PATIENCE):
            found = await spool.spooled()
        return json_answer(200, {"status": found.health, "spool": found})

    async def _ready(self) -> Answer:
        reasons = self._reasons()
        try:
            async with asyncio.timeout(_PATIENCE):
                reasons += await self._store_reasons()
        except (RedriveError, TimeoutError) as error:
            reasons.append(f"the store does not answer ({type(error).__name__})")
        return json_answer(503 if reasons else 200, {"ready": not reasons, "reasons": reasons})

    async def _store_reasons(self) -> list[str]:
        """Return why no event could be kept; with a spool it need not be the store that keeps it."""
        await self._app.open()
        spool = spool_of(self._app.store)
        if spool is not None:
            found = await spool.spooled()
            return ["the spool is full"] if spool.is_away and found.waiting >= found.limit else []
        await self._app.store.queues()
        return []

    async def _metrics(self) -> Answer:
        try:
            if self._page is None:
                from redrive.sources.webhook.prometheus import page_of  # noqa: PLC0415 - needs the extra `prometheus`

                self._page = page_of(self._app, self._counts)
        except SettingsError as error:
            return refusal(501, str(error))
        with contextlib.suppress(RedriveError):  # a store that is away is what the page then says
            await self._app.open()
        media, text = await self._page()
        return Answer(200, text, ((b"content-type", media),))

    def describe(self) -> list[dict[str, Any]]:
        """Return each source: what it is, what it took, what it refused."""
        return [self._describe(source) for source in self._sources.values()]

    def _describe(self, source: Source) -> dict[str, Any]:
        last = self._counts.last.get(source.name)
        return {
            "name": source.name,
            "preset": source.preset,
            "signed": not source.insecure,
            "secrets": len(source.secrets),
            "events": source.events,
            "forward": source.forward.destination if source.forward else None,
            "last_delivery": None if last is None else datetime.fromtimestamp(last, UTC),
            "results": {result: count for (name, result), count in self._counts.results.items() if name == source.name},
            "refusals": {why: count for (name, why), count in self._counts.refusals.items() if name == source.name},
        }
