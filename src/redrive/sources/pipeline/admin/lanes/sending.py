"""
Documents back into topics, confirmed.

Owns the producer of operators' acts: a message counts as sent once the broker confirms it, and its place is known
then. Blocks; for commands and threads. Knows no lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaException, Producer

from redrive.errors import SourceError
from redrive.sources.kafka.client.errors import Heard, said
from redrive.sources.kafka.client.settings import producer_settings
from redrive.sources.kafka.replay.reader import REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confluent_kafka import KafkaError

    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.records.output import Output

_LATE = 5.0  # seconds that delivery reports may take beyond the message's own limit


class SentPlace(NamedTuple):
    """Where a message stands."""

    topic: str
    partition: int
    offset: int


class LaneProducer:
    """Sends messages and waits for the broker."""

    def __init__(self, kafka: KafkaConfig) -> None:
        self._kafka, self._heard = kafka, Heard()
        settings = producer_settings(kafka, linger_ms=5, timeout_ms=int(REQUEST * 1000))
        self._producer = Producer({**settings, "error_cb": self._heard})

    def send(self, outputs: Sequence[Output]) -> list[SentPlace | None]:
        """Send *outputs*; return the place of each, None for one that the broker did not confirm."""
        places: list[SentPlace | None] = [None] * len(outputs)
        for at, output in enumerate(outputs):
            self._produce(output, _noting(places, at))
        self._producer.flush(REQUEST + _LATE)
        return places

    def problem(self, topic: str) -> SourceError:
        """Return the error for messages that *topic* did not take."""
        why = self._heard.last or "the broker did not confirm them"
        return SourceError(f"cannot send documents to {topic!r}: {why}; those that were confirmed are noted, and the "
                           "same command goes on with the others")  # fmt: skip

    def _produce(self, output: Output, reported: Callable[[KafkaError | None, Any], None]) -> None:
        while True:
            try:
                self._producer.produce(
                    output.topic, value=output.value, key=output.key, headers=list(output.headers),
                    on_delivery=reported,
                )  # fmt: skip
            except BufferError:
                self._producer.poll(0.2)
            except KafkaException as error:
                why = said(error.args[0], self._kafka, self._heard)
                raise SourceError(f"cannot send a document to {output.topic!r}: {why}") from None
            else:
                return


def _noting(places: list[SentPlace | None], at: int) -> Callable[[KafkaError | None, Any], None]:
    def reported(error: KafkaError | None, message: Any) -> None:
        if error is None:
            places[at] = SentPlace(message.topic(), message.partition(), message.offset())

    return reported
