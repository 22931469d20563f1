"""
A request's bytes in, a kept letter and an answer out.

Owns the order of the steps: check the signature, unpack, read, route, keep. Nothing is parsed before the signature
holds, and nothing is answered with a 2xx before the store has it. Knows no HTTP server and no store's inside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from redrive.core.letter import BYTES, JSON, Category, Draft, Failure
from redrive.engine.clock import new_id
from redrive.errors import DraftError, QueueFull, StoreError, StoreUnavailable
from redrive.failpoints import hit
from redrive.signals.log import write
from redrive.sources.webhook.config import QUEUE
from redrive.sources.webhook.counts import InboxCounts, Result
from redrive.sources.webhook.events.identity import WINDOW, Identity, digest_of, identify
from redrive.sources.webhook.events.reading import Event, Malformed, challenge_of, payload_of
from redrive.sources.webhook.events.routing import Route, route, wants
from redrive.sources.webhook.receiving.answers import (
    TOO_LARGE,
    UNSIGNED,
    Answer,
    json_answer,
    later,
    refusal,
    text_answer,
)
from redrive.sources.webhook.receiving.unpack import unpack
from redrive.sources.webhook.source import Source
from redrive.sources.webhook.status import RECEIVED, accepted_at, receipt_of
from redrive.stores.spooling import spool_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.letter import Letter
    from redrive.sources.webhook.checking import Checker
    from redrive.sources.webhook.config import InboxConfig
    from redrive.sources.webhook.port import App
    from redrive.sources.webhook.signatures.verdict import Refusal

_LONGEST_MEDIA = 200  # characters of a content type
_NO_HANDLER = Failure(
    error_type="NoHandler",
    message="no handler: the application has none for this event; add one, deploy, and replay the letter",
    category=Category.PERMANENT,
    rule="no handler when it arrived",
    terminal=True,
    fingerprint="inbox-no-handler",
    template="no handler",
)


class Arrived(msgspec.Struct, frozen=True):
    """One request, read to its end; header names are lower case."""

    headers: Sequence[tuple[bytes, bytes]]
    query: bytes
    body: bytes


class SignedEvent(msgspec.Struct, frozen=True):
    """A signed request, and what was read of it."""

    source: Source
    arrived: Arrived
    event: Event
    identity: Identity | None
    digest: str
    now: float  # seconds since the epoch, by the inbox's clock


class Intake:
    """Takes requests in for the sources of one inbox."""

    def __init__(
        self, app: App, config: InboxConfig, counts: InboxCounts, now: Callable[[], float], *, elsewhere: bool = False
    ) -> None:
        self._app, self._config, self.counts, self._now = app, config, counts, now
        self._elsewhere = elsewhere
        self.is_waiting = False  # another task tries to reach the store: no request need try as well

    def limit(self, source: Source) -> int:
        """Return how many bytes a body of *source* may have."""
        return source.max_body or self._config.max_body

    def note(self, source: Source, result: Result) -> None:
        """Count what became of a request."""
        self.counts.results[source.name, result] += 1

    async def take(self, checker: Checker, arrived: Arrived) -> Answer:
        """Return the answer; a 202 means that exactly one letter is kept."""
        source, now = checker.source, self._now()
        hit("inbox.received")
        verdict = checker.check(arrived.headers, arrived.query, arrived.body, now)
        if verdict.refusal is not None:
            self._refuse(source, verdict.refusal)
            return UNSIGNED
        hit("inbox.checked")
        tracing = self._app.tracing
        if tracing is None:
            return await self._take_signed(checker, arrived, now)
        with tracing.receiving(source.name, arrived.headers) as span:  # strangers, who cannot sign, make no spans
            answer = await self._take_signed(checker, arrived, now)
            span.add({"http.response.status_code": answer.status})
        return answer

    async def _take_signed(self, checker: Checker, arrived: Arrived, now: float) -> Answer:
        source = checker.source
        plain = unpack(arrived.headers, arrived.body, self.limit(source))
        if isinstance(plain, Answer):
            self.note(source, Result.TOO_LARGE if plain is TOO_LARGE else Result.INVALID)
            return plain
        if plain is not arrived.body:
            arrived = msgspec.structs.replace(arrived, body=plain)
        answer = self._answer_at_once(source, plain) if source.preset == "slack" else None
        return answer or await self._take_event(checker, arrived, now)

    def _refuse(self, source: Source, reason: Refusal) -> None:
        """Count a bad signature; log the first, the tenth, the hundredth …, so that no sender can flood the log."""
        self.note(source, Result.REFUSED)
        self.counts.refusals[source.name, reason] += 1
        count = self.counts.refusals[source.name, reason]
        if str(count).strip("0") == "1":
            write("warning", "redrive.inbox.refused", {"source": source.name, "reason": str(reason), "count": count})

    def _answer_at_once(self, source: Source, body: bytes) -> Answer | None:
        """Return the answer to what is no event: Slack asks whether the address is ours."""
        challenge = challenge_of(source, body)
        if challenge is None:
            return None
        self.note(source, Result.CHALLENGE)
        return text_answer(200, challenge)

    async def _take_event(self, checker: Checker, arrived: Arrived, now: float) -> Answer:
        source = checker.source
        try:
            event = checker.events.read(arrived.headers, arrived.body)
        except Malformed as error:
            self.note(source, Result.INVALID)
            return refusal(400, str(error))
        if not wants(source, event.type):
            self.note(source, Result.IGNORED)
            return json_answer(200, {"status": "ignored"})
        digest = digest_of(arrived.body)
        identity = identify(source.name, event.id, digest, now, by_body=source.dedupe == "body")
        try:
            return await self._keep(SignedEvent(source, arrived, event, identity, digest, now))
        except DraftError:
            self.note(source, Result.INVALID)
            return refusal(400, "no letter can be made of this request")
        except QueueFull:
            self.note(source, Result.FULL)
            return later(429, "the inbox is full; send it again later", self._config.retry_after)
        except StoreError:
            self.note(source, Result.UNAVAILABLE)
            return later(503, "the inbox cannot keep it now; send it again later", self._config.retry_after)

    async def _keep(self, taken: SignedEvent) -> Answer:
        """Keep the event and say so; what is a duplicate is answered with the letter that is kept."""
        source, app = taken.source, self._app
        if self.is_waiting and spool_of(app.store) is None:
            raise StoreUnavailable("the store was away when the inbox began, and is not back yet")
        if source.forward is not None and source.name not in app.handlers:
            await app.open()  # forwards are registered then
        if taken.identity is not None and taken.identity.before is not None:
            earlier = await self._kept_before(taken.identity.before, taken.now)
            if earlier is not None:
                return await self._duplicate(taken, earlier)
        where = route(source, taken.event.type, app.handlers, elsewhere=self._elsewhere)
        (receipt,) = await app.enqueue_many((self._draft(taken, where),))
        hit("inbox.kept")
        if receipt.duplicate:
            return await self._duplicate(taken, receipt.id)
        self.note(source, Result.ACCEPTED if where.handled else Result.UNHANDLED)
        self.counts.last[source.name] = taken.now
        letter = await self._look(receipt.id) if source.preset == "plain" else None
        return _kept(taken, 202, receipt.id, letter, {"status": "pending" if where.handled else "failed"})

    async def _kept_before(self, letter_id: str, now: float) -> str | None:
        """Return the letter of the window before this one, if the same bytes arrived less than a window ago."""
        await self._app.open()
        letter = await self._look(letter_id)  # a store that is away says so when the event is put
        at = None if letter is None else letter.metadata.get(RECEIVED)
        return letter_id if isinstance(at, int | float) and now - at < WINDOW else None

    async def _duplicate(self, taken: SignedEvent, letter_id: str) -> Answer:
        source, letter = taken.source, await self._look(letter_id)
        is_other = letter is not None and letter.metadata.get("digest") not in (None, taken.digest)
        self.note(source, Result.CONFLICT if is_other else Result.DUPLICATE)
        if is_other:
            write(
                "warning", "redrive.inbox.conflict", {"source": source.name, "id": letter_id, "kept": "the first body"}
            )
        self.counts.last[source.name] = taken.now
        return _kept(taken, 200, letter_id, letter, {"duplicate": True})

    async def _look(self, letter_id: str) -> Letter | None:
        """Return a letter; None while the store is away, because what is kept is kept without this look."""
        store = self._app.store
        spool = spool_of(store)
        if spool is not None and spool.is_away:
            return None  # asking it would let the sender wait
        with contextlib.suppress(StoreError):
            return await store.get(letter_id)
        return None

    def _draft(self, taken: SignedEvent, where: Route) -> Draft:
        source, arrived, identity = taken.source, taken.arrived, taken.identity
        handler = self._app.handlers.get(where.kind)
        return Draft(  # not by app.draft, which takes three times as long to read what a caller may give
            new_id() if identity is None else identity.letter,
            QUEUE if handler is None else handler.queue,
            where.kind,
            payload_of(source, arrived.body),
            JSON if source.preset == "plain" else _media_of(arrived.headers),
            taken.event.key,
            None if identity is None else identity.key,
            origin=f"webhook:{source.name}",
            headers=tuple([(name.decode("latin-1"), value) for name, value in arrived.headers]),
            metadata=_metadata(taken),
            unique_in="kind" if identity is None else "queue",
            failure=None if where.handled else _NO_HANDLER,
        )


def _metadata(taken: SignedEvent) -> dict[str, object]:
    event, query = taken.event, taken.arrived.query
    known: dict[str, object] = {"source": taken.source.name}
    if event.type is not None:
        known["type"] = event.type
    if event.id is not None:
        known["event_id"] = event.id
    if event.sequence is not None:
        known["sequence"] = event.sequence
    if query:
        known["query"] = query.decode("latin-1")
    known["digest"], known[RECEIVED] = taken.digest, round(taken.now, 3)
    return known


def _kept(taken: SignedEvent, status: int, letter_id: str, letter: Letter | None, told: dict[str, object]) -> Answer:
    """Return the answer to an event that is kept, in the form of its source; every form names the letter."""
    source = taken.source
    named = (b"redrive-id", letter_id.encode())
    if source.preset == "twilio":
        return Answer(status, b"<Response/>", ((b"content-type", b"text/xml"), named))
    if source.preset == "plain" and letter is not None:
        return json_answer(status, receipt_of(letter, source.name), named)
    if source.preset == "plain":  # in the spool: what the store will add is not known yet
        told = {"idempotency_key": taken.event.id, **told}
        if "duplicate" not in told:
            told["created_at"] = accepted_at(taken.now)
    return json_answer(status, {"id": letter_id, **told}, named)


def _media_of(headers: Sequence[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name == b"content-type":
            return value.decode("latin-1")[:_LONGEST_MEDIA] or BYTES
    return BYTES
