"""
Spans and metrics of letters.

Owns the names of spans and attributes: those of OpenTelemetry's messaging conventions, and ours (`redrive.kind`,
`redrive.attempt`, `redrive.outcome`, `redrive.category`). Owns which span is whose parent. An attribute is never a
payload, a header, a key, an error's text or a secret. Knows no store's inside and no handler.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

import msgspec
from opentelemetry import context as contexts
from opentelemetry import metrics, trace

from redrive.core.letter import Status
from redrive.core.trace_context import TRACEPARENT, carrier_in, carrier_of
from redrive.signals.otel.engines import tell
from redrive.signals.otel.instruments import Instruments
from redrive.signals.otel.spans import OpenSpan, Safely, carrier_in_context, context_of, links_to
from redrive.signals.otel.store import TracedStore
from redrive.stores.clock import SystemStoreClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from redrive.core.decide import Outcome
    from redrive.core.facts import Fact
    from redrive.core.letter import Draft, Letter
    from redrive.core.moves import Move
    from redrive.stores.contract import Claim, Store

_SCOPE = "redrive"
_SYSTEM = "redrive"
_MOST_LINKS = 128  # what the SDK keeps of one span
_clock = SystemStoreClock()


class OpenTelemetry:
    """
    Spans and metrics by OpenTelemetry: `Redrive(…, tracing=OpenTelemetry())`.

    The providers are the application's global ones if not given; without the SDK nothing is recorded.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._meters = Instruments(metrics.get_meter(_SCOPE, meter_provider=meter_provider))
        self._safely = Safely()

    # ------------------------------------------------------------------ any span

    def now(self) -> float:
        """Return seconds since the epoch, as spans have them."""
        return _clock.wall_us() / 1e6

    def carrier(self) -> dict[str, str]:
        """Return the current trace context as headers have it: `traceparent`, and `tracestate` if there is one."""
        return carrier_in_context()

    def begin(
        self,
        name: str,
        kind: trace.SpanKind,
        attributes: Mapping[str, Any],
        *,
        parent: Mapping[str, str] | None = None,
        links: Sequence[dict[str, str]] = (),
        began: float | None = None,
    ) -> OpenSpan:
        """
        Begin a span; the caller ends it.

        Its parent is the span that the carrier *parent* names (none: it begins a trace), or the current one if no
        carrier is given. *began* is when it began, if that was before now.
        """
        before = contexts.get_current() if parent is None else context_of(parent, contexts.Context())
        start = None if began is None else int(began * 1e9)
        span = self._safely(
            self._tracer.start_span,
            name,
            context=before,
            kind=kind,
            attributes=attributes,
            links=links_to(list(links)[:_MOST_LINKS]),
            start_time=start,
            record_exception=False,
            set_status_on_exception=False,
        )
        return OpenSpan(span, before, self._safely, self.now() if began is None else began)

    @contextlib.contextmanager
    def span(self, name: str, kind: trace.SpanKind, attributes: Mapping[str, Any], **where: Any) -> Iterator[OpenSpan]:
        """Begin a span as `begin` does, make it the current one, and end it with the block."""
        span = self.begin(name, kind, attributes, **where)
        try:
            with span.current():
                yield span
        except BaseException as error:
            span.fail(type(error).__name__)
            raise
        finally:
            span.end()

    def time(self, name: str, span: OpenSpan, attributes: Mapping[str, Any]) -> None:
        """Add how long *span* took to the histogram *name*."""
        failed = {"error.type": span.error_type} if span.error_type else {}
        self._safely(self._meters.time, name, self.now() - span.began, {**attributes, **failed})

    def count(self, fact: Fact) -> None:
        """Count *fact*; a listener of the hub."""
        self._meters.count(fact)

    # ------------------------------------------------------------------ letters in

    def watch(self, store: Store) -> Store:
        """Return *store*, traced; one that is traced already as it is."""
        return store if isinstance(store, TracedStore) else cast("Store", TracedStore(store, self))

    @contextlib.contextmanager
    def enqueuing(self, drafts: Sequence[Draft]) -> Iterator[Sequence[Draft]]:
        """Give *drafts* with the trace of this span; one that names its trace already keeps it, and is linked."""
        given = [carrier for draft in drafts if (carrier := carrier_of(draft.metadata))]
        about = _batch("enqueue", "send", [draft.queue for draft in drafts])
        if len(drafts) == 1:
            about |= {"messaging.message.id": drafts[0].id, "redrive.kind": drafts[0].kind}
        with self._timed(about, trace.SpanKind.PRODUCER, links=given) as span:
            yield _marked(drafts, span.carrier)

    @contextlib.contextmanager
    def _timed(self, about: dict[str, Any], kind: trace.SpanKind, **where: Any) -> Iterator[OpenSpan]:
        span = None
        try:
            with self.span(_name(about), kind, about, **where) as span:
                yield span
        finally:
            if span is not None:
                self.time("messaging.client.operation.duration", span, _labels(about))

    # ------------------------------------------------------------------ the worker

    def claimed(self, claims: Sequence[Claim], began: float) -> None:
        """Tell of a claim that found letters; it has its own trace, with a link to that of each letter."""
        if claims:
            letters = [claim.letter for claim in claims]
            about = _batch("claim", "receive", [letter.queue for letter in letters])
            links = [carrier_of(letter.metadata) for letter in letters]
            self._past(about, links, began)

    def settled(self, settlements: Sequence[tuple[Claim, Move]], accepted: Sequence[bool], began: float) -> None:
        """Tell of letters that were settled, and what became of those that were not delivered."""
        if settlements:
            letters = [claim.letter for claim, _ in settlements]
            about = _batch("settle", "settle", [letter.queue for letter in letters])
            span = self._past(about, [carrier_of(letter.metadata) for letter in letters], began, end=False)
            for (claim, move), yes in zip(settlements, accepted, strict=False):
                if not yes or move.to is not Status.DELIVERED:
                    span.note("redrive.letter", _fate(claim.letter, move, accepted=yes))
            span.end()

    def _past(self, about: dict[str, Any], links: list[dict[str, str]], began: float, *, end: bool = True) -> OpenSpan:
        span = self.begin(_name(about), trace.SpanKind.CLIENT, about, parent={}, links=links, began=began)
        self.time("messaging.client.operation.duration", span, _labels(about))
        if end:
            span.end()
        return span

    def handling(self, letter: Letter) -> OpenSpan:
        """
        Begin the span of a handler.

        It is a child of the letter's enqueue, so that a letter's tries are one trace. After a replay, which may come
        days later, it begins a trace of its own with a link to the first.
        """
        carrier = carrier_of(letter.metadata)
        is_first = not letter.cycles
        about = {
            **_operation("handle", "process", letter.queue),
            "messaging.message.id": letter.id,
            "redrive.queue": letter.queue,
            "redrive.kind": letter.kind,
            "redrive.attempt": letter.attempts,
        }
        return self.begin(
            _name(about),
            trace.SpanKind.CONSUMER,
            about,
            parent=carrier if is_first else {},
            links=[] if is_first else [carrier],
        )

    @contextlib.contextmanager
    def running(self, letter: Letter) -> Iterator[Callable[[Outcome], None]]:
        """Span a run that no engine carries out; give what takes its outcome."""
        span = self.handling(letter)
        try:
            with span.current():
                yield lambda outcome: tell(span, outcome)
        finally:
            self.handled(letter, span)

    def handled(self, letter: Letter, span: OpenSpan) -> None:
        """End the span of a handler."""
        span.end()
        labels = _operation("handle", "process", letter.queue) | {"redrive.kind": letter.kind}
        self.time("messaging.process.duration", span, labels)

    # ------------------------------------------------------------------ the inbox

    @contextlib.contextmanager
    def receiving(self, source: str, headers: Iterable[tuple[bytes, bytes]]) -> Iterator[OpenSpan]:
        """
        Span a signed request.

        Its parent is the current span, if the web framework is traced too, else the one that the request names.
        """
        is_inside = trace.get_current_span().get_span_context().is_valid
        sent = carrier_in((name.decode("latin-1"), value) for name, value in headers)
        kind = trace.SpanKind.INTERNAL if is_inside else trace.SpanKind.SERVER
        about = {"http.request.method": "POST", "http.route": "/{source}", "redrive.source": source}
        with self.span(f"receive {source}", kind, about, parent=None if is_inside else sent) as span:
            yield span
        self.time("http.server.request.duration", span, about)

    @contextlib.contextmanager
    def requesting(self, host: str, letter: Letter) -> Iterator[OpenSpan]:
        """Span a request to another service; the span has its address without path and query."""
        about = {"http.request.method": "POST", "server.address": host}
        said = {"redrive.kind": letter.kind, "redrive.queue": letter.queue, "redrive.attempt": letter.attempts}
        with self.span("POST", trace.SpanKind.CLIENT, about | said) as span:
            try:
                yield span
            except BaseException as error:
                span.fail(type(error).__name__)
                raise
            finally:
                self.time("http.client.request.duration", span, about)

    # ------------------------------------------------------------------ brokers

    def sending(self, system: str, topic: str, carriers: Sequence[dict[str, str]]) -> OpenSpan:
        """Begin the span of messages to a broker: a child of the one trace that they continue, or linked to several."""
        about = _operation("send", "send", topic, system=system) | {"messaging.batch.message_count": len(carriers)}
        one = len(carriers) == 1
        return self.begin(
            _name(about),
            trace.SpanKind.PRODUCER,
            about,
            parent=carriers[0] if one else {},
            links=[] if one else carriers,
        )

    @contextlib.contextmanager
    def sending_all(self, system: str, topics: Iterable[str], carriers: Sequence[dict[str, str]]) -> Iterator[None]:
        """Span messages that are sent in the block; their topic is named if it is the only one."""
        named = set(topics)
        topic = named.pop() if len(named) == 1 else ""
        span = self.sending(system, topic, carriers)
        try:
            yield
        except BaseException as error:
            span.fail(type(error).__name__)
            raise
        finally:
            self.sent(system, topic, span)

    @contextlib.contextmanager
    def publishing(self, system: str, topic: str, letter: Letter) -> Iterator[Letter]:
        """
        Span a letter that is sent in the block, and give it with the trace of this span.

        The parent is the current span, which is the handler's in a worker, else the one that the letter names.
        """
        span = self.sending(system, topic, [self.carrier() or carrier_of(letter.metadata)])
        try:
            yield msgspec.structs.replace(letter, metadata={**letter.metadata, **span.carrier})
        except BaseException as error:
            span.fail(type(error).__name__)
            raise
        finally:
            self.sent(system, topic, span)

    def sent(self, system: str, topic: str, span: OpenSpan) -> None:
        """End the span of messages to a broker."""
        span.end()
        self.time("messaging.client.operation.duration", span, _operation("send", "send", topic, system=system))

    # ------------------------------------------------------------------ pipelines

    @contextlib.contextmanager
    def stepping(self, node: str, attempt: int, parent: dict[str, str]) -> Iterator[dict[str, str]]:
        """Span a try of a document that came to *node* by gRPC, without a topic; give the trace for what follows."""
        about = {"redrive.node": node, "redrive.attempt": attempt}
        with self.span(f"step {node}", trace.SpanKind.INTERNAL, about, parent=parent) as span:
            yield span.carrier


@contextlib.contextmanager
def continued(letter: Letter) -> Iterator[None]:
    """Let spans that begin in the block belong to the trace of *letter*: for handlers that run in a process."""
    token = contexts.attach(context_of(carrier_of(letter.metadata), contexts.get_current()))
    try:
        yield
    finally:
        contexts.detach(token)


def _operation(name: str, kind: str, destination: str, *, system: str = _SYSTEM) -> dict[str, Any]:
    said = {"messaging.system": system, "messaging.operation.name": name, "messaging.operation.type": kind}
    return said | ({"messaging.destination.name": destination} if destination else {})


def _batch(name: str, kind: str, queues: list[str]) -> dict[str, Any]:
    """Return what a call with letters of *queues* says; a queue is named if it is the only one."""
    one = queues[0] if queues and len(set(queues)) == 1 else ""
    return _operation(name, kind, one) | {"messaging.batch.message_count": len(queues)}


def _name(about: Mapping[str, Any]) -> str:
    """Return `operation destination`, as the conventions name spans."""
    return f"{about['messaging.operation.name']} {about.get('messaging.destination.name', '')}".rstrip()


def _labels(about: Mapping[str, Any]) -> dict[str, Any]:
    few = ("messaging.system", "messaging.operation.name", "messaging.operation.type", "messaging.destination.name")
    return {name: about[name] for name in few if name in about}


def _marked(drafts: Sequence[Draft], carrier: dict[str, str]) -> Sequence[Draft]:
    if not carrier:
        return drafts
    return tuple(
        draft
        if TRACEPARENT in draft.metadata
        else msgspec.structs.replace(draft, metadata={**draft.metadata, **carrier})
        for draft in drafts
    )


def _fate(letter: Letter, move: Move, *, accepted: bool) -> dict[str, Any]:
    said = {"messaging.message.id": letter.id, "redrive.kind": letter.kind, "redrive.attempt": letter.attempts}
    if not accepted:
        return said | {"redrive.status": "claim lost"}
    category = {} if move.failure is None else {"redrive.category": str(move.failure.category)}
    return said | {"redrive.status": str(move.to)} | category
