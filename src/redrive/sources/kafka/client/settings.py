"""
What librdkafka's consumer is told.

Owns the way from our configuration to its settings: ours as defaults, the user's over them,
and above all those that the consumer's promises rest on. Knows no client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.sources.kafka.config import KafkaConfig

_PREFETCH_PART = 4  # of the bytes that may be held, a quarter may wait in the client
_KIB = 1024
_HEARTBEAT = 3_000  # ms, librdkafka's own default


def consumer_settings(config: KafkaConfig, group: str, topics: Iterable[str] = ()) -> dict[str, Any]:
    """Return the settings of a consumer of *topics*, names or patterns, in *group*."""
    classic = config.group_protocol == "classic"
    ours: dict[str, Any] = {
        "fetch.queue.backoff.ms": 10,  # when it has fetched enough; its default of a second is longer than that lasts
        "topic.metadata.refresh.interval.ms": 15_000,  # a broker lost while we join is not asked again before this
        "max.partition.fetch.bytes": 256 * _KIB,  # short runs: records of many partitions, so many keys, are in memory
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
    """Return a session of *timeout* ms with three heartbeats in it; by default the first may come when it is over."""
    return {"session.timeout.ms": timeout, "heartbeat.interval.ms": max(1, min(_HEARTBEAT, timeout // 3))}


def _without_dead_letters(config: KafkaConfig, topics: list[str]) -> dict[str, Any]:
    """Return what hides dead-letter topics from patterns: theirs could not leave them out, having no word for that."""
    named = any(config.dlq_topic_suffix in topic.replace("\\", "") for topic in topics)  # whoever names them means them
    if named or not config.dlq_enabled or not any(topic.startswith("^") for topic in topics):
        return {}
    suffix = config.dlq_topic_suffix.replace(".", "\\.")
    return {"topic.blacklist": f"^.*{suffix}$,^.*{suffix}\\.parked$"}


def is_cooperative(settings: dict[str, Any]) -> bool:
    """Whether partitions come and go one by one; with the consumer protocol they always do."""
    return "cooperative" in str(settings.get("partition.assignment.strategy", "cooperative"))
