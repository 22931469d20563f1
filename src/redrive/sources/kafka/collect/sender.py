"""
The sender of letters to Kafka topics.

Owns a producer for async code: `publish` returns on the broker's delivery report, and on nothing else. A thread
serves the reports and passes them to the waiting event loops. Knows no store: the worker settles the letter.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from redrive.core.letter import Letter  # noqa: TC001 - handlers' annotations are read at run time
from redrive.errors import Reject, SourceError
from redrive.failpoints import hit
from redrive.signals.tracing import open_tracing
from redrive.sources.kafka.client.settings import TOO_LARGE, may_fit_unbatched, producer_settings
from redrive.sources.kafka.collect.convert import home_of, message_of, partition_of
from redrive.sources.kafka.config_checks import topic_problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.signals.tracing import Tracing
    from redrive.sources.kafka.config import KafkaConfig

_POLL = 0.1  # seconds that the thread waits for a report
_ROOM_REST = 0.01  # seconds until a full producer has room again
_FLUSH = 5.0  # seconds for unconfirmed letters when it is closed
_ANY = -1  # partition
_HOPELESS = frozenset({*TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.TOPIC_EXCEPTION})


class KafkaSender:
    """
    Publishes letters to Kafka, each confirmed by the broker (`acks=all`, idempotent producer).

    A letter whose origin names a topic goes back to it. Any other goes to *topic*, a name or a function of the
    letter; with neither it is rejected. *allowed*, if given, are the only topics that may be written to. *tracing* is
    the setting of that name. `publish` is the port of `redrive.core.sending`, and a handler.
    """

    def __init__(
        self,
        config: KafkaConfig,
        *,
        topic: str | Callable[[Letter], str] | None = None,
        allowed: tuple[str, ...] | None = None,
        tracing: Tracing = None,
    ) -> None:
        self._config, self._topic, self._allowed, self._wants_tracing = config, topic, allowed, tracing
        self._producers: dict[bool, Producer] = {}  # by whether it is unbatched
        self._opening = threading.Lock()
        self._closed = threading.Event()

    async def publish(self, letter: Letter) -> None:
        """Send *letter* and wait for the report; raise SourceError if it is refused, Reject if it always will be."""
        topic = self._target(letter)
        tracing = open_tracing(self._wants_tracing)
        if tracing is None:
            await self._publish(topic, letter)
            return
        with tracing.publishing("kafka", topic, letter) as traced:
            await self._publish(topic, traced)

    async def _publish(self, topic: str, letter: Letter) -> None:
        hit("kafka.before_send")
        try:
            await self._send(topic, letter, partition_of(letter.origin) if home_of(letter.origin) else _ANY)
        except KafkaException as error:
            if error.args[0].fatal():
                self._producers = {}  # a fatal error: the next letter gets a new producer
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:  # noqa: SLF001 - the client's own name for it
                raise _failure(letter, topic, error.args[0]) from None
            await self._send_anywhere(topic, letter)
        hit("kafka.after_send")

    def close(self) -> None:
        """Wait a moment for unconfirmed letters, then close; may be called twice."""
        self._closed.set()
        for producer in self._producers.values():
            producer.flush(_FLUSH)

    def _target(self, letter: Letter) -> str:
        given = self._topic(letter) if callable(self._topic) else self._topic
        topic = home_of(letter.origin) or given or ""
        if problem := topic_problem(topic):
            raise Reject(f"cannot send letter {letter.id!r} to Kafka: {problem}")
        if self._allowed is not None and topic not in self._allowed:
            raise Reject(
                f"cannot send letter {letter.id!r} to {topic!r}: this sender may not write there; allow that topic"
            )
        return topic

    async def _send(self, topic: str, letter: Letter, partition: int) -> None:
        try:
            await self._reported(topic, letter, partition, unbatched=False)
        except KafkaException as error:
            if not may_fit_unbatched(error.args[0], unbatched=False):
                raise
            await self._reported(topic, letter, partition, unbatched=True)

    async def _reported(self, topic: str, letter: Letter, partition: int, *, unbatched: bool) -> None:
        producer = self._connected(unbatched=unbatched)
        loop = asyncio.get_running_loop()
        report: asyncio.Future[None] = loop.create_future()
        await _produce(producer, topic, letter, partition, lambda error, _: _report(loop, report, error))
        await report

    async def _send_anywhere(self, topic: str, letter: Letter) -> None:
        """Send a letter whose partition no longer exists: its topic was created again with fewer."""
        try:
            await self._send(topic, letter, _ANY)
        except KafkaException as error:
            raise _failure(letter, topic, error.args[0]) from None

    def _connected(self, *, unbatched: bool) -> Producer:
        with self._opening:
            if self._closed.is_set():
                raise SourceError("cannot send a letter to Kafka: this sender is closed; make a new one")
            if unbatched not in self._producers:
                made = Producer(producer_settings(self._config, linger_ms=5, unbatched=unbatched))
                self._producers[unbatched] = made
                threading.Thread(target=self._serve, args=(made,), name="redrive-sender", daemon=True).start()
            return self._producers[unbatched]

    def _serve(self, producer: Producer) -> None:
        while not self._closed.is_set():  # also a producer that was replaced: its letters still need their reports
            producer.poll(_POLL)


async def _produce(
    producer: Producer, topic: str, letter: Letter, partition: int, reported: Callable[[Any, Any], None]
) -> None:
    message = message_of(letter)
    headers: Any = message.headers
    while True:
        try:
            producer.produce(
                topic, value=message.value, key=message.key, headers=headers, partition=partition, on_delivery=reported
            )
        except BufferError:
            await asyncio.sleep(_ROOM_REST)
        else:
            return


def _report(loop: asyncio.AbstractEventLoop, report: asyncio.Future[None], error: KafkaError | None) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(_settle, report, error)


def _settle(report: asyncio.Future[None], error: KafkaError | None) -> None:
    if report.done():  # its letter timed out or was interrupted
        return
    if error is None:
        report.set_result(None)
    else:
        report.set_exception(KafkaException(error))


def _failure(letter: Letter, topic: str, error: KafkaError) -> Exception:
    message = f"{topic!r} did not take letter {letter.id!r}: {error.str()}"
    return Reject(message) if error.code() in _HOPELESS else SourceError(message)
