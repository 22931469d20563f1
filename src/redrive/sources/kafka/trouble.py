"""
The client's errors in words, with the way out.

Owns what people read when a broker does not answer, does not know a topic or does not allow
something. The client's own words for an outage say only that there is one, so that those that it
says beside them, to whoever listens, are kept. Never says a password.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

if TYPE_CHECKING:
    from redrive.sources.kafka.config import KafkaConfig

# The names with an underscore are the client's own, for errors that no broker sent.
_AWAY = frozenset({
    KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE,  # noqa: SLF001
})  # fmt: skip
_WAYS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "see its name",
    KafkaError.TOPIC_EXCEPTION: "see its name",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow this client the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "allow this client the group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow this client the transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow this client to",
    KafkaError._AUTHENTICATION: "see user, password and certificates",  # noqa: SLF001
}


class Heard:
    """Keeps the last thing that a client says went wrong; give it to a client as its `error_cb`."""

    def __init__(self) -> None:
        self.last = ""

    def __call__(self, error: KafkaError) -> None:
        """Take in one error; that all brokers are away only sums up those before it."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self.last = error.str()


def said(error: KafkaError, config: KafkaConfig, heard: Heard | None = None) -> str:
    """Return *error* in words; *heard* is what the same client said beside it."""
    if error.code() in _AWAY:
        why = f" ({heard.last})" if heard is not None and heard.last else f" ({error.str()})"
        return f"no broker answers at {_servers(config)}{why}; see KAFKA_BOOTSTRAP_SERVERS and the broker"
    way = _WAYS.get(error.code())
    return f"{error.str()}; {way}" if way else error.str()


def _servers(config: KafkaConfig) -> str:
    servers = config.bootstrap_servers
    return servers if isinstance(servers, str) else ",".join(servers)
