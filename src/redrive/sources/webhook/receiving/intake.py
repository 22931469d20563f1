"""
A request's bytes in, a kept letter and an answer out.

Owns the order of the steps: check the signature, unpack, read, route, keep. Nothing is parsed before the signature
holds, and nothing is answered with a 2xx before the store has it. Knows no HTTP server and no store's inside.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from redrive.core.letter import BYTES, JSON, Category, Failure
from redrive.errors import DraftError, QueueFull, StoreError
from redrive.failpoints import hit
from redrive.signals.log import write
from redrive.sources.webhook.config import QUEUE
from redrive.sources.webhook.counts import InboxCounts, Result
from redrive.sources.webhook.events.identity import WINDOW, Identity, digest_of, identify
from redrive.sources.webhook.events.reading import Event, Malformed, challenge_of, payload_of, read_event
from redrive.sources.webhook.events.routing import Route, route, wants
from redrive.sources.webhook.receiving.answers import UNSIGNED, Answer, json_answer, later, refusal, text_answer
from redrive.sources.webhook.receiving.unpack import unpack
from redrive.sources.webhook.status import view_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redrive.core.letter import Draft, Letter
    from redrive.sources.webhook.checking import Checker
    from redrive.sources.webhook.config import InboxConfig
    from redrive.sources.webhook.port import App
    from redrive.sources.webhook.signatures.verdict import Refusal
    from redrive.sources.webhook.source import Source

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


class Arrived(NamedTuple):
    """One request, read to its end; header names are lower case."""

    headers: Sequence[tuple[bytes, bytes]]
    query: bytes
    body: bytes


class Intake:
    """Takes requests in for the sources of one inbox."""

    def __init__(
        self, app: App, config: InboxConfig, counts: InboxCounts, now: Callable[[], float], *, elsewhere: bool = False
    ) -> None:
        self._app, self._config, self.counts, self._now = app, config, counts, now
        self._elsewhere = elsewhere

    def limit(self, source: Source) -> int:
        """Return how many bytes a body of *source* may have."""
        return source.max_body or self._config.max_body

    def note(self, source: Source, result: Result) -> None:
        """Count what became of a request."""
        self.counts.results[source.name, result] += 1

    async def take(self, checker: Checker, arrived: Arrived) -> Answer:
        """Return the answer; a 202 means that exactly one letter is kept."""
        source = checker.source
        hit("inbox.received")
        verdict = checker.check(arrived.headers, arrived.query, arrived.body, self._now())
        if verdict.refusal is not None:
            self._refuse(source, verdict.refusal)
            return UNSIGNED
        hit("inbox.checked")
        plain = unpack(arrived.headers, arrived.body, self.limit(source))
        if isinstance(plain, Answer):
            self.note(source, Result.INVALID)
            return plain
        answer = self._answer_at_once(source, plain)
        return answer or await self._take_event(source, arrived._replace(body=plain))

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

    async def _take_event(self, source: Source, arrived: Arrived) -> Answer:
        try:
            event = read_event(source, arrived.headers, arrived.body)
        except Malformed as error:
            self.note(source, Result.INVALID)
            return refusal(400, str(error))
        if not wants(source, event.type):
            self.note(source, Result.IGNORED)
            return json_answer(200, {"status": "ignored"})
        digest, now = digest_of(arrived.body), self._now()
        identity = identify(source.name, event.id, digest, now, by_body=source.dedupe == "body")
        try:
            return await self._keep(source, arrived, event, identity, digest)
        except DraftError:
            self.note(source, Result.INVALID)
            return refusal(400, "no letter can be made of this request")
        except QueueFull:
            self.note(source, Result.FULL)
            return later(429, "the inbox is full; send it again later", self._config.retry_after)
        except StoreError:
            self.note(source, Result.UNAVAILABLE)
            return later(503, "the inbox cannot keep it now; send it again later", self._config.retry_after)

    async def _keep(
        self, source: Source, arrived: Arrived, event: Event, identity: Identity | None, digest: str
    ) -> Answer:
        """Keep the event and say so; what is a duplicate is answered with the letter that is kept."""
        earlier = await self._kept_before(identity)
        if earlier is not None:
            return await self._duplicate(source, earlier, digest)
        where = route(source, event.type, self._app.handlers, elsewhere=self._elsewhere)
        draft = self._draft(source, arrived, event, identity, where, digest)
        (receipt,) = await self._app.enqueue_many((draft,))
        hit("inbox.kept")
        if receipt.duplicate:
            return await self._duplicate(source, receipt.id, digest)
        self.note(source, Result.ACCEPTED if where.handled else Result.UNHANDLED)
        self.counts.last[source.name] = self._now()
        return await self._say(source, receipt.id, "pending" if where.handled else "failed")

    async def _kept_before(self, identity: Identity | None) -> str | None:
        """Return the letter of the window before this one, if the same bytes arrived less than a window ago."""
        if identity is None or identity.before is None:
            return None
        await self._app.open()
        letter = None
        with contextlib.suppress(StoreError):  # a store that is away says so when the event is put; a spool takes it
            letter = await self._app.store.get(identity.before)
        at = None if letter is None else letter.metadata.get("received")
        is_recent = isinstance(at, int | float) and self._now() - at < WINDOW
        return identity.before if is_recent else None

    async def _duplicate(self, source: Source, letter_id: str, digest: str) -> Answer:
        letter = None
        with contextlib.suppress(StoreError):  # it is kept: that the store is away now changes nothing about that
            letter = await self._app.store.get(letter_id)
        is_other = letter is not None and letter.metadata.get("digest") not in (None, digest)
        self.note(source, Result.CONFLICT if is_other else Result.DUPLICATE)
        if is_other:
            write(
                "warning", "redrive.inbox.conflict", {"source": source.name, "id": letter_id, "kept": "the first body"}
            )
        self.counts.last[source.name] = self._now()
        return _kept(source, 200, letter_id, letter, {"duplicate": True})

    async def _say(self, source: Source, letter_id: str, state: str) -> Answer:
        """Return the answer to a new event, in the form of its source."""
        letter = None
        if source.preset == "plain":
            with contextlib.suppress(StoreError):  # it is kept: the answer says less, and still yes
                letter = await self._app.store.get(letter_id)
        return _kept(source, 202, letter_id, letter, {"status": state})

    def _draft(
        self, source: Source, arrived: Arrived, event: Event, identity: Identity | None, where: Route, digest: str
    ) -> Draft:
        handler = self._app.handlers.get(where.kind)
        draft = self._app.draft(
            where.kind,
            payload_of(source, arrived.body),
            content_type=JSON if source.preset == "plain" else _media_of(arrived.headers),
            queue=QUEUE if handler is None else handler.queue,
            id=None if identity is None else identity.letter,
            idempotency_key=None if identity is None else identity.key,
            unique_in="kind" if identity is None else "queue",
            key=event.key,
            origin=f"webhook:{source.name}",
            headers=[(name.decode("latin-1"), value) for name, value in arrived.headers],
            metadata=self._metadata(source, arrived, event, digest),
        )
        return draft if where.handled else msgspec.structs.replace(draft, failure=_NO_HANDLER)

    def _metadata(self, source: Source, arrived: Arrived, event: Event, digest: str) -> dict[str, object]:
        known = {
            "source": source.name,
            "type": event.type,
            "event_id": event.id,
            "sequence": event.sequence,
            "query": arrived.query.decode("latin-1") or None,
            "digest": digest,
            "received": round(self._now(), 3),  # seconds since the epoch, by the inbox's clock
        }
        return {name: value for name, value in known.items() if value is not None}


def _kept(source: Source, status: int, letter_id: str, letter: Letter | None, told: dict[str, object]) -> Answer:
    """Return the answer to an event that is kept, in the form of its source; every form names the letter."""
    named = (b"redrive-id", letter_id.encode())
    if source.preset == "twilio":
        return Answer(status, b"<Response/>", ((b"content-type", b"text/xml"), named))
    if source.preset == "plain" and letter is not None:
        return json_answer(status, view_of(letter, source.name), named)
    return json_answer(status, {"id": letter_id, **told}, named)


def _media_of(headers: Sequence[tuple[bytes, bytes]]) -> str:
    found = next((value for name, value in headers if name == b"content-type"), b"")
    return found.decode("latin-1")[:_LONGEST_MEDIA] or BYTES
