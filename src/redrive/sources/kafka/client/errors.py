"""
Errors of the Kafka client as text, with the way out.

Owns what operators read when a broker does not answer, does not know a topic or refuses access. The client's error
for an outage does not tell its cause, so `Heard` keeps the last error that the client reported through its callback.
Never shows a password.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

if TYPE_CHECKING:
    from redrive.sources.kafka.config import KafkaConfig

# Names with an underscore are the client's own errors, not the broker's.
_AWAY = frozenset({
    KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE,  # noqa: SLF001
})  # fmt: skip
_WAYS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "check its name",
    KafkaError.TOPIC_EXCEPTION: "check its name",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow this client the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "allow this client the group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow this client the transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow this client to",
    KafkaError._AUTHENTICATION: "check user, password and certificates",  # noqa: SLF001
    # Two members with one group_instance_id: the classic protocol ends the first, the consumer protocol the second.
    KafkaError.FENCED_INSTANCE_ID: "another member has taken this group_instance_id; give each its own",
    KafkaError.UNRELEASED_INSTANCE_ID: (
        "another member has this group_instance_id; give each its own or, if that member died, "
        "start again once its session has ended"
    ),
    KafkaError._AUTO_OFFSET_RESET: "set auto_offset_reset to earliest or latest, or set the group's offsets",  # noqa: SLF001
}
_FINAL = frozenset({
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError._FATAL, KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001
})  # fmt: skip


class Heard:
    """Keeps the last error that a client reports; pass it to a client as its `error_cb`."""

    def __init__(self) -> None:
        self.last = ""

    def __call__(self, error: KafkaError) -> None:
        """Keep *error*, unless it only tells that all brokers are down: the one before it has the cause."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self.last = error.str()


def is_final(error: KafkaError) -> bool:
    """Whether a consumer cannot go on after *error*; `fatal()` is not set on all of these."""
    return error.fatal() or error.code() in _FINAL


def said(error: KafkaError, config: KafkaConfig, heard: Heard | None = None) -> str:
    """Return *error* as text with the way out; *heard* has the last error of the same client's callback."""
    if error.code() in _AWAY:
        why = f" ({heard.last})" if heard is not None and heard.last else f" ({error.str()})"
        return f"no broker answers at {_servers(config)}{why}; see KAFKA_BOOTSTRAP_SERVERS and the broker"
    way = _way(error)
    return f"{error.str()}; {way}" if way else error.str()


def _way(error: KafkaError) -> str:
    if error.code() != KafkaError._FATAL:  # noqa: SLF001
        return _WAYS.get(error.code(), "")
    ways = (
        way for code, way in _WAYS.items() if KafkaError(code).str() in error.str()
    )  # its cause is only in its text
    return next(ways, "this client cannot go on: fix the cause and start it again")


def _servers(config: KafkaConfig) -> str:
    servers = config.bootstrap_servers
    return servers if isinstance(servers, str) else ",".join(servers)
