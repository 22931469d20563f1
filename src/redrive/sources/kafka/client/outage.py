"""
Outages of the brokers.

Owns noticing one: the client reports lost connections, and a request then tells whether a broker answers. Logs an
outage when it begins, once a minute, and when it is over. Knows no poller.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from redrive.sources.kafka.client.errors import Heard, said

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig

_log = logging.getLogger("redrive.kafka")
_ANY_TOPIC = "__consumer_offsets"  # any answer will do
_PATIENCE = 0.5  # seconds; the calling thread is blocked for that long
_AGAIN = 5.0  # seconds between two requests
_REMINDER = 60.0
_LONG_AGO = float("-inf")


class Outage:
    """Pass it to a client as its `error_cb`, and call `look` now and then."""

    def __init__(self, config: KafkaConfig, clock: Clock, *, patience: float = _PATIENCE) -> None:
        self.reason = ""  # while no broker answers: why nothing is received and nothing is committed
        self._config, self._clock, self._patience, self._heard = config, clock, patience, Heard()
        self._suspected = False
        self._began = self._asked = self._said = self._passed_on = _LONG_AGO

    def __call__(self, error: KafkaError) -> None:
        """Take in one error of the client; losing its last connection alone is no outage yet."""
        self._heard(error)
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - the client's own name for it
            self._suspected = True
        elif not self.reason and self._clock.monotonic() - self._passed_on >= _REMINDER:
            self._passed_on = self._clock.monotonic()
            _log.info("the Kafka client reports: %s", error.str())

    def look(self, consumer: Consumer) -> None:
        """Ask whether a broker answers, if the client has lost its connections."""
        now = self._clock.monotonic()
        if not self._suspected or now - self._asked < _AGAIN:
            return
        try:
            consumer.list_topics(_ANY_TOPIC, timeout=self._patience)
        except KafkaException as error:
            self._asked = now
            self._is_away(error.args[0], now)
        else:
            self._answers(now)

    def _is_away(self, error: KafkaError, now: float) -> None:
        if not self.reason:
            self._began, self._said = now, _LONG_AGO
        self.reason = said(error, self._config, self._heard)
        if now - self._said >= _REMINDER:
            self._said = now
            _log.error("%s; the consumer goes on by itself once a broker answers", self.reason)

    def _answers(self, now: float) -> None:
        if self.reason:
            _log.warning("a broker answers again, after %.0f s", now - self._began)
        self.reason, self._suspected, self._asked = "", False, _LONG_AGO
