"""
Whether a broker answers.

Owns the suspicion, from what the client says of its connections, and the question that settles
it; says an outage in the log when it begins, once a minute, and when it is over. Knows no poller.
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
_ANY_TOPIC = "__consumer_offsets"  # what is asked about; that somebody answers is all that counts
_PATIENCE = 0.5  # seconds; whoever asks does nothing else meanwhile
_AGAIN = 5.0  # seconds until it is asked again
_REMINDER = 60.0
_LONG_AGO = float("-inf")


class Outage:
    """Give it to a client as its `error_cb`, and let it `look` now and then."""

    def __init__(self, config: KafkaConfig, clock: Clock, *, patience: float = _PATIENCE) -> None:
        self.reason = ""  # why nothing comes and nothing is committed, while no broker answers
        self._config, self._clock, self._patience, self._heard = config, clock, patience, Heard()
        self._suspected = False
        self._began = self._asked = self._said = self._passed_on = _LONG_AGO

    def __call__(self, error: KafkaError) -> None:
        """Take in one error of the client; that it lost its last connection may mean nothing."""
        self._heard(error)
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - the client's own name for it
            self._suspected = True
        elif not self.reason and self._clock.monotonic() - self._passed_on >= _REMINDER:
            self._passed_on = self._clock.monotonic()
            _log.info("the client says: %s", error.str())

    def look(self, consumer: Consumer) -> None:
        """Ask, if there is reason to doubt it, whether a broker answers."""
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
            _log.error("%s; it goes on by itself when one does", self.reason)

    def _answers(self, now: float) -> None:
        if self.reason:
            _log.warning("a broker answers again, after %.0f s", now - self._began)
        self.reason, self._suspected, self._asked = "", False, _LONG_AGO
