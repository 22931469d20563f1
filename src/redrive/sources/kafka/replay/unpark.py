"""
Parked keys, listed and unparked by an operator.

Owns the two commands on the topic of parked keys: list the keys, and unpark one after its dead letters were
replayed in order. Blocks; for commands and scripts. Knows no consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, Producer

from redrive.errors import SourceError
from redrive.sources.kafka.client.settings import producer_settings
from redrive.sources.kafka.dead_letters.parked_keys import parked_topic
from redrive.sources.kafka.records.messages import key_text
from redrive.sources.kafka.replay.filter import Filter
from redrive.sources.kafka.replay.progress import MAX_REPLAYS
from redrive.sources.kafka.replay.reader import REQUEST, Reader
from redrive.sources.kafka.replay.replay import ReplayReport, replay

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.sources.kafka.config import KafkaConfig

_BATCH = 500
_GROUP = "redrive-parked"  # nothing is committed under it
_MOST_DIGITS = 19  # of an offset


def parked_keys(config: KafkaConfig, dlq: str) -> dict[bytes, int]:
    """Return the keys that are parked behind dead letters of *dlq*, with the offset of the record that parked them."""
    found: dict[bytes, int] = {}
    for message in _notes(config, parked_topic(dlq)):
        if message.value() is None:
            found.pop(message.key() or b"", None)
        else:
            found[message.key() or b""] = _offset(message.value())
    return found


def unpark(config: KafkaConfig, topic: str, key: str, *, max_replays: int = MAX_REPLAYS) -> ReplayReport:
    """
    Replay the dead letters of a parked *key* in their order, then let its records run again.

    Records of the key that arrive in the meantime are parked and replayed too; the key is unparked once none
    is left. Raise SourceError, before anything is sent, if the key is not parked or one of its dead letters
    was already replayed *max_replays* times.
    """
    parked = next((each for each in parked_keys(config, topic) if key_text(each) == key), None)
    if parked is None:
        raise SourceError(
            f"{key!r} is not parked behind dead letters of {topic!r}; `redrive kafka dlq parked` lists those that are"
        )
    wanted = Filter(key=key)
    stuck = replay(config, topic, wanted, max_replays=max_replays, dry_run=True)
    if stuck.too_often:
        raise SourceError(
            f"{key!r} stays parked: {stuck.too_often} of its dead letters were replayed {max_replays} times or more; "
            "repair the cause and raise max_replays"
        )
    total = ReplayReport()
    while (done := replay(config, topic, wanted, max_replays=max_replays)).replayed:
        total.replayed += done.replayed
    _remove_note(config, topic, parked)
    total.replayed += replay(config, topic, wanted, max_replays=max_replays).replayed
    total.seen = total.replayed
    return total


release = unpark  # the name until 0.1


def _remove_note(config: KafkaConfig, dlq: str, key: bytes) -> None:
    """Write a tombstone for *key*; raise SourceError unless the broker confirms it."""
    topic = parked_topic(dlq)
    places = {message.partition() for message in _notes(config, topic) if message.key() == key}
    refused: list[str] = []
    producer = Producer(producer_settings(config, linger_ms=0))

    def reported(error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            refused.append(error.str())

    for partition in places:
        producer.produce(topic, value=None, key=key, partition=partition, on_delivery=reported)
    if producer.flush(REQUEST) or refused:
        why = refused[0] if refused else "the broker did not answer"
        raise SourceError(f"the key stays parked, because {topic!r} did not take the note that unparks it: {why}")


def _notes(config: KafkaConfig, topic: str) -> Iterator[Any]:
    try:
        reader = Reader(config, topic, _GROUP, resume=False)
    except SourceError as error:
        raise SourceError(
            f"cannot list parked keys ({error}); a consumer with dlq_park_keys creates the topic"
        ) from None
    try:
        for batch in reader.batches(_BATCH):
            yield from batch
    finally:
        reader.close()


def _offset(text: bytes) -> int:
    """Return the offset in a note, -1 if another program wrote it."""
    return int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else -1
