"""
Settings of the librdkafka clients.

Owns how a configuration becomes client settings: our defaults first, the user's settings over them, and last
the settings that the consumer's promises rest on. Creates no client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.sources.kafka.config import KafkaConfig

# Brokers apply max.message.bytes to the whole batch, so only a message sent on its own is known to be too large.
TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_UNBATCHED: dict[str, Any] = {"batch.num.messages": 1, "linger.ms": 0}
_PREFETCH_PART = 4  # the client may prefetch a quarter of message_cache_max_bytes
_KIB = 1024
_HEARTBEAT = 3_000  # ms, librdkafka's own default
_LARGEST_MESSAGE = 1_000_000_000  # bytes; the topic's own limit decides


def producer_settings(
    config: KafkaConfig,
    *,
    linger_ms: int,
    timeout_ms: int | None = None,
    unbatched: bool = False,
    transactional_id: str = "",
) -> dict[str, Any]:
    """
    Return the settings of a producer: idempotent, and confirmed by all in-sync replicas.

    *timeout_ms* bounds one message, dlq_flush_timeout_ms if absent. An *unbatched* producer sends each
    message in a batch of its own. With a *transactional_id* it is transactional.
    """
    own = {"transactional.id": transactional_id} if transactional_id else {}
    return {
        "linger.ms": linger_ms,
        "message.max.bytes": _LARGEST_MESSAGE,
        **config.client_settings("producer"),
        **config.producer_settings,
        **(_UNBATCHED if unbatched else {}),
        "enable.idempotence": True,
        "acks": "all",
        "message.timeout.ms": config.dlq_flush_timeout_ms if timeout_ms is None else timeout_ms,
        **own,
    }


def may_fit_unbatched(error: KafkaError, *, unbatched: bool) -> bool:
    """
    Whether *error* may mean a batch that is too large, so its messages are to be sent again by an unbatched producer.

    What is sent again differs, because each sender confirms something else: one dead letter, one letter, the rest of a
    page of a replay, or a whole transaction.
    """
    return not unbatched and error.code() in TOO_LARGE


def transaction_settings(config: KafkaConfig, name: str, *, unbatched: bool) -> dict[str, Any]:
    """Return the settings of the exactly-once mode's producer, whose transactional id is *name*."""
    timeout = config.transaction_timeout_ms
    asks_for_topics = {"allow.auto.create.topics": True}  # asking for a topic creates it, if the broker allows that
    settings = producer_settings(config, linger_ms=5, timeout_ms=timeout, unbatched=unbatched, transactional_id=name)
    return {**asks_for_topics, **settings, "transaction.timeout.ms": timeout}


def reader_settings(config: KafkaConfig, group: str) -> dict[str, Any]:
    """Return the settings of a client that reads partitions as no member of *group*, and reports their ends."""
    return {
        **config.client_settings("consumer"),
        **config.consumer_settings,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }


def consumer_settings(config: KafkaConfig, group: str, topics: Iterable[str] = ()) -> dict[str, Any]:
    """Return the settings of a consumer of *topics*, names or patterns, in *group*."""
    classic = config.group_protocol == "classic"
    ours: dict[str, Any] = {
        "fetch.queue.backoff.ms": 10,  # the default of 1 s leaves the workers without records
        "topic.metadata.refresh.interval.ms": 15_000,  # bounds how long a broker lost during the join goes unnoticed
        "max.partition.fetch.bytes": 256 * _KIB,  # short runs, so that records of many partitions are in memory
        "auto.offset.reset": config.auto_offset_reset,
        "queued.max.messages.kbytes": max(_KIB, config.message_cache_max_bytes // _KIB // _PREFETCH_PART),
        **({"partition.assignment.strategy": "cooperative-sticky"} if classic else {}),
        **(_session(config.session_timeout_ms) if config.session_timeout_ms else {}),
        **_without_dead_letters(config, list(topics)),
        **({"group.instance.id": config.group_instance_id} if config.group_instance_id else {}),
    }
    return {
        **ours,
        **config.client_settings("consumer"),
        **config.consumer_settings,
        "group.id": group,
        "group.protocol": config.group_protocol,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
    }


def _session(timeout: int) -> dict[str, Any]:
    """Return a session of *timeout* ms with three heartbeats in it; the default heartbeat may be longer than it."""
    return {"session.timeout.ms": timeout, "heartbeat.interval.ms": max(1, min(_HEARTBEAT, timeout // 3))}


def _without_dead_letters(config: KafkaConfig, topics: list[str]) -> dict[str, Any]:
    """Return the setting that hides dead-letter topics from subscribed patterns, which have no negation."""
    named = any(config.dlq_topic_suffix in topic.replace("\\", "") for topic in topics)  # it is asked for by name
    hides = config.dlq_enabled and any(topic.startswith("^") for topic in topics)
    return {"topic.blacklist": ",".join(config.dlq_patterns)} if hides and config.dlq_patterns and not named else {}


def is_cooperative(settings: dict[str, Any]) -> bool:
    """Whether a rebalance adds and revokes single partitions; with the consumer protocol it always does."""
    return "cooperative" in str(settings.get("partition.assignment.strategy", "cooperative"))
