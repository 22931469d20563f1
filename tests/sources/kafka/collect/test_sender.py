"""The sender outlives its producer: one that takes nothing more is replaced."""

from __future__ import annotations

import asyncio
import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from redrive.core.letter import Letter
from redrive.errors import SourceError
from redrive.sources.kafka import KafkaConfig, KafkaSender

FATAL = KafkaError(KafkaError._FENCED, "fenced by another producer", fatal=True)


class _Producer:
    """A client that reports each message at once, or has died."""

    def __init__(self, is_dead) -> None:
        self._is_dead = is_dead

    def produce(self, _topic, *, on_delivery, **_):
        if self._is_dead:
            raise KafkaException(FATAL)
        on_delivery(None, None)

    def poll(self, wait):
        threading.Event().wait(wait)

    def flush(self, _limit):
        pass


async def test_a_producer_that_takes_nothing_more_is_replaced(monkeypatch):
    made = [_Producer(is_dead=False), _Producer(is_dead=True)]
    monkeypatch.setattr("redrive.sources.kafka.collect.sender.Producer", lambda _settings: made.pop())
    sender = KafkaSender(KafkaConfig(), topic="orders")
    letter = Letter("1", "default", "order", b"{}")
    try:
        with pytest.raises(SourceError, match="fenced"):
            await sender.publish(letter)
        await asyncio.wait_for(sender.publish(letter), 120)
    finally:
        sender.close()
    assert not made
