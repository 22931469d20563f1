"""
Messages that are confirmed before the commit.

Owns the producer of a pipeline and every message between a step and the broker's delivery report. `send` returns once
all of its messages are confirmed; one that fails is sent again alone, for as long as it takes, and those that
succeeded are not. A thread serves the reports, and hands them to the event loop in batches. Knows no document.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

from redrive.core.decide import next_try
from redrive.core.policy import RetryPolicy
from redrive.errors import SourceError
from redrive.failpoints import hit
from redrive.sources.kafka.client.settings import TOO_LARGE, producer_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confluent_kafka import KafkaError

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.records.output import Output

_log = logging.getLogger("redrive.pipeline")
_LINGER = 5  # ms; a batch of messages costs the broker little more than one
_GIVES_UP = 120_000  # ms until the client reports a message as failed, and it is sent again
_FULL = 0.02  # seconds until a full queue has room
_AGAIN = RetryPolicy.exponential(0.1, 5.0, 2.0, 3)  # after 3 failures the health says so


class TooLarge(SourceError):
    """A new document is larger than its topic takes."""


class _Sending:
    """The messages of one `send`."""

    __slots__ = ("failures", "future", "gives_up", "last", "left")

    def __init__(self, count: int, future: asyncio.Future[None]) -> None:
        self.left, self.future, self.failures = count, future, 0
        self.gives_up = False  # on a message that is too large; a document that was accepted is never given up
        self.last: Any = None  # the newest message that was confirmed, as the client reports it


class ConfirmedOutputs:
    """Sends messages until the broker confirms them; make it on the event loop that uses it."""

    def __init__(self, kafka: KafkaConfig, clock: Clock, *, missing: Callable[[str], None] | None = None) -> None:
        self._kafka, self._clock, self._missing = kafka, clock, missing
        self._loop = asyncio.get_running_loop()
        self._producer = self._connect()
        self._news: deque[tuple[_Sending, Output, KafkaError | None]] = deque()
        self._is_told = False
        self._is_broken = False  # the producer had a fatal error
        self._retired: deque[Producer] = deque()
        self._closing = threading.Event()
        self._open: set[_Sending] = set()
        self.refused: dict[str, str] = {}  # topics that do not take messages, and why
        self.sent = 0  # messages that were confirmed
        self.failures = 0  # messages that were refused, and sent again
        self._thread = threading.Thread(target=self._serve, name="redrive-outputs", daemon=True)
        self._thread.start()

    async def send(self, outputs: Sequence[Output]) -> None:
        """Send *outputs*; return once the broker has confirmed all of them."""
        if outputs:
            await self._send(outputs)

    async def place(self, output: Output) -> tuple[int, int | None]:
        """
        Send *output*, a new document; return its partition, and its offset if the broker says it, once it is confirmed.

        Raise TooLarge if its topic refuses it again and again: the caller still has the document.
        """
        report = (await self._send([output], gives_up=True)).last
        offset = report.offset()
        return report.partition(), offset if offset is not None and offset >= 0 else None

    async def _send(self, outputs: Sequence[Output], *, gives_up: bool = False) -> _Sending:
        sending = _Sending(len(outputs), self._loop.create_future())
        sending.gives_up = gives_up
        self._open.add(sending)
        hit("pipeline.before_outputs")
        try:
            for output in outputs:
                self._produce(sending, output)
            await sending.future
        finally:
            self._open.discard(sending)
        hit("pipeline.after_outputs")
        return sending

    async def close(self) -> None:
        """Stop; documents whose messages are not confirmed by now are processed again elsewhere."""
        self._closing.set()
        await asyncio.to_thread(self._thread.join)
        for sending in self._open:
            sending.future.cancel()

    # ------------------------------------------------------------------ one message

    def _produce(self, sending: _Sending, output: Output) -> None:
        if sending.future.done():  # no caller waits for it any more: its document is processed again
            return
        headers: Any = list(output.headers) or None
        try:
            self._producer.produce(
                output.topic, value=output.value, key=output.key, headers=headers, partition=output.partition,
                on_delivery=partial(self._reported, sending, output),
            )  # fmt: skip
        except BufferError:
            self._loop.call_later(_FULL, self._produce, sending, output)
        except KafkaException as error:
            self._failed(sending, output, error.args[0])

    def _confirmed(self, sending: _Sending, output: Output) -> None:
        self.sent += 1
        sending.left -= 1
        if self.refused:
            self.refused.pop(output.topic, None)
        if not sending.left and not sending.future.done():
            sending.future.set_result(None)

    def _failed(self, sending: _Sending, output: Output, error: KafkaError) -> None:
        self.failures += 1
        sending.failures += 1
        self._is_broken = self._is_broken or error.fatal()
        again = next_try(sending.failures, _AGAIN, self._clock.draw())
        if again.exhausted and sending.gives_up and error.code() in TOO_LARGE:
            _give_up(sending, output)
            return
        if again.exhausted:
            self.refused[output.topic] = error.str()
        _log.warning("%s refused a message, next try in %.1f s: %s", output.topic, again.delay, error.str())
        if self._missing is not None:
            self._missing(output.topic)
        self._loop.call_later(again.delay, self._produce, sending, output)

    # ------------------------------------------------------------------ reports

    def _serve(self) -> None:
        """Serve delivery reports; runs in the thread."""
        while not self._closing.is_set():
            self._producer.poll(0.1)
            while self._retired:
                _discard(self._retired.popleft())  # its messages are reported as failed, and sent again
        _discard(self._producer)

    def _reported(self, sending: _Sending, output: Output, error: KafkaError | None, message: Any) -> None:
        """Take in one report; runs in the thread."""
        sending.last = message
        self._news.append((sending, output, error))
        if not self._is_told and not self._closing.is_set():
            self._is_told = True
            self._loop.call_soon_threadsafe(self._take_in)

    def _take_in(self) -> None:
        self._is_told = False
        while self._news:
            sending, output, error = self._news.popleft()
            if error is None:
                self._confirmed(sending, output)
            else:
                self._failed(sending, output, error)
        if self._is_broken:
            self._is_broken = False
            self._retired.append(self._producer)
            self._producer = self._connect()

    def _connect(self) -> Producer:
        return Producer(producer_settings(self._kafka, linger_ms=_LINGER, timeout_ms=_GIVES_UP))


def _give_up(sending: _Sending, output: Output) -> None:
    if not sending.future.done():
        told = f"cannot send a document of {len(output.value or b'')} bytes: {output.topic} takes none so large"
        way_out = (
            "raise max.message.bytes of the topic, or keep large bodies in a repository (`documents` of the graph)"
        )
        sending.future.set_exception(TooLarge(f"{told}; {way_out}"))


def _discard(producer: Producer) -> None:
    producer.purge(in_queue=True, in_flight=True, blocking=False)
    producer.flush(1.0)
