"""
The checks of the configuration.

Owns the bounds of every key, and the error texts for wrong values. Reads a configuration, and knows neither its class
nor a Kafka client.
"""

from __future__ import annotations

from dataclasses import fields
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, get_args

from redrive.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator

Ordering = Literal["key_hash", "partition", "unordered"]
Mode = Literal["async", "process"]
Protocol = Literal["classic", "consumer"]
StallPolicy = Literal["warn", "dlq_head", "leave_group"]
_LONGEST_TOPIC = 249
_MOST_STARTS = 12  # the start note has one digit, and a conviction needs three more starts
_TOPIC_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_NOT_OF_CONSUMER_PROTOCOL = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "partition.assignment.strategy",
    "group.protocol.type",
)
# Settings that a client of that kind does not know; `settings` may hold those of both.
NOT_OF = {
    "producer": frozenset({
        "auto.commit.interval.ms", "auto.offset.reset", "check.crcs", "consume.callback.max.messages",
        "coordinator.query.interval.ms", "fetch.error.backoff.ms", "fetch.max.bytes", "fetch.message.max.bytes",
        "fetch.min.bytes", "fetch.queue.backoff.ms", "fetch.wait.max.ms", "group.instance.id", "group.protocol.type",
        "group.remote.assignor", "heartbeat.interval.ms", "isolation.level", "max.partition.fetch.bytes",
        "max.poll.interval.ms", "max.poll.records", "partition.assignment.strategy", "queued.max.messages.kbytes",
        "queued.min.messages", "session.timeout.ms",
    }),
    "consumer": frozenset({
        "batch.num.messages", "batch.size", "compression.codec", "compression.level", "compression.type",
        "delivery.report.only.error", "delivery.timeout.ms", "enable.gapless.guarantee", "linger.ms",
        "message.send.max.retries", "partitioner", "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes", "queue.buffering.max.messages", "queue.buffering.max.ms", "queuing.strategy",
        "request.timeout.ms", "retries", "sticky.partitioning.linger.ms",
    }),
}  # fmt: skip
# The consumer's promises rest on these; another value would break them silently.
_OURS = (
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "group.id",
    "bootstrap.servers",
    "group.protocol",
    "acks",
    "enable.idempotence",
    "message.timeout.ms",
    "transactional.id",
    "transaction.timeout.ms",
)
_INSTEAD = {  # our own key for it
    "message.timeout.ms": "dlq_flush_timeout_ms",
    "transactional.id": "transactional_id",
    "transaction.timeout.ms": "transaction_timeout_ms",
    "group.id": "group",
    "bootstrap.servers": "bootstrap_servers",
    "group.protocol": "group_protocol",
}


def topic_problem(name: str) -> str:
    """Return why a topic cannot be called *name*, or nothing if it can."""
    if not name or name in {".", ".."}:
        return f"{name!r} is no name for a topic"
    if len(name) > _LONGEST_TOPIC:
        return f"{name[:40]!r}… has {len(name)} characters and a topic's name may have {_LONGEST_TOPIC}"
    if not set(name) <= _TOPIC_LETTERS:
        return f"{name!r} has characters that a topic's name may not have; use letters, digits, '.', '_' and '-'"
    return ""


LEAST: dict[str, int] = {  # every whole number's lower bound
    "min_in_flight": 0, "adaptive_interval_ms": 1,
    "max_in_flight": 1, "max_retries": 1, "retry_backoff_ms": 0, "max_retry_backoff_ms": 0, "retry_jitter_ms": 0,
    "max_retry_time_ms": 1, "task_timeout_ms": 1, "batch_size": 1, "worker_pool_size": 1, "process_count": 1,
    "max_revoke_grace_ms": 0, "shutdown_drain_timeout_ms": 0, "session_timeout_ms": 1, "poll_batch_size": 1,
    "queue_max_messages": 1, "message_cache_max_bytes": 1, "commit_interval_ms": 0,
    "crash_loop_limit": 0, "stall_after_ms": 1,
    "dlq_retention_ms": -1,
    "transaction_timeout_ms": 1000, "dlq_flush_timeout_ms": 1, "dlq_flood_limit": 0, "dlq_flood_cooldown_ms": 1,
}  # fmt: skip
IN_CODE = frozenset({"dlq_names", "dlq_codec"})  # values that no text can express
MAY_BE_NONE = frozenset({"batch_size", "max_retry_time_ms", "task_timeout_ms", "session_timeout_ms"})
FLAGS = frozenset({"dlq_park_keys", "exactly_once", "exponential_backoff", "dlq_enabled", "dlq_create_topics",
                    "adaptive_concurrency", "tracebacks"})  # fmt: skip
_HINTS = {
    "max_retries": " (it counts tries: 1 means one try; with 0 nothing would ever be handled)",
    "task_timeout_ms": " (None means no limit)",
}


def type_problems(config: Any, room: str) -> Iterator[str]:
    """Yield the values of *config* that are no whole number in their bounds, or no flag."""
    for each in fields(config):
        name, value = each.name, getattr(config, each.name)
        if name in LEAST and not _is_number(value, name):
            hint = _HINTS.get(name, "")
            yield f"{room}.{name} is {value!r} and must be a whole number from {LEAST[name]} up{hint}"
        elif name in FLAGS and not isinstance(value, bool):
            yield f"{room}.{name} is {value!r} and must be true or false"


_MOST_AT_ONCE = 1_000_000  # records in one call of the client


def _is_number(value: object, name: str) -> bool:
    if value is None:
        return name in MAY_BE_NONE
    return type(value) is int and isfinite(value) and value >= LEAST[name]


def execution_problems(config: Any) -> Iterator[str]:
    """Yield the other problems of an ExecutionConfig."""
    if config.mode not in get_args(Mode):
        yield f"execution.mode is {config.mode!r} and must be async or process"
    bounds = config.min_in_flight, config.max_in_flight
    if all(map(_is_number, bounds, ("min_in_flight", "max_in_flight"))) and bounds[0] > bounds[1]:
        yield f"execution.min_in_flight is {bounds[0]} and must not exceed max_in_flight, {bounds[1]}"
    try:
        if all(_is_number(getattr(config, name), name) for name in ("max_retries", "max_retry_time_ms")):
            _ = config.policy
    except (PolicyError, TypeError, ValueError) as error:
        yield f"execution: {error}"


def kafka_problems(config: Any) -> Iterator[str]:
    """Yield the other problems of a KafkaConfig."""
    if not config.bootstrap_servers:
        yield "kafka.bootstrap_servers is empty; name a broker, such as 'localhost:9092'"
    if config.group_protocol not in get_args(Protocol):
        yield f"kafka.group_protocol is {config.group_protocol!r} and must be classic or consumer"
    if config.auto_offset_reset not in {"earliest", "latest", "error"}:
        yield f"kafka.auto_offset_reset is {config.auto_offset_reset!r} and must be earliest, latest or error"
    if config.dlq_oversize not in {"halt", "pointer"}:
        yield f"kafka.dlq_oversize is {config.dlq_oversize!r} and must be halt or pointer"
    if isinstance(config.poll_batch_size, int) and config.poll_batch_size > _MOST_AT_ONCE:
        yield f"kafka.poll_batch_size is {config.poll_batch_size} and may be {_MOST_AT_ONCE} at most"
    if isinstance(config.crash_loop_limit, int) and config.crash_loop_limit > _MOST_STARTS:
        yield f"kafka.crash_loop_limit is {config.crash_loop_limit} and starts are counted up to {_MOST_STARTS} only"
    if config.dlq_enabled and (why := _suffix_problem(config.dlq_topic_suffix)):
        yield f"kafka.dlq_topic_suffix: {why}"
    if config.stall_policy not in get_args(StallPolicy):
        yield f"kafka.stall_policy is {config.stall_policy!r} and must be warn, dlq_head or leave_group"
    if config.stall_policy == "dlq_head" and not config.dlq_enabled:
        yield "kafka.stall_policy is dlq_head and needs kafka.dlq_enabled: without it the record would be lost"
    yield from _setting_problems(config)


_NOT_EXACT = ("crash_loop_limit", "dlq_flush_timeout_ms", "dlq_oversize", "dlq_spill_folder")


def _idle_problems(config: Any) -> Iterator[str]:
    """Yield settings that would be ignored: a user who sets one relies on it."""
    defaults = {each.name: each.default for each in fields(config)}
    for name in _NOT_EXACT if config.exactly_once else ():
        if getattr(config, name) not in (defaults[name], 0):
            yield f"kafka.{name} does nothing where kafka.exactly_once is on; leave it away"


def _misplaced(config: Any) -> Iterator[str]:
    for kind, given, other in (
        ("consumer", config.consumer_settings, "producer"),
        ("producer", config.producer_settings, "consumer"),
    ):
        for name in sorted(set(given) & NOT_OF[kind]):
            yield f"kafka.{kind}_settings has {name!r}, which only a {other} takes; put it into kafka.{other}_settings"


def _suffix_problem(suffix: object) -> str:
    if not isinstance(suffix, str) or not suffix:
        return "it is empty, so dead letters would go back to their own topic; use '.dlq'"
    return topic_problem(f"t{suffix}")


def _setting_problems(config: Any) -> Iterator[str]:
    given = {**config.settings, **config.consumer_settings, **config.producer_settings}
    for name in sorted(set(given) & set(_OURS)):
        way = f"use {_INSTEAD[name]}" if name in _INSTEAD else "leave it away"
        yield f"the setting {name!r} cannot be passed through: the consumer's promises rest on its own value; {way}"
    if config.exactly_once and given.get("isolation.level", "read_committed") != "read_committed":
        yield "the setting 'isolation.level' must be read_committed where exactly_once is on; leave it away"
    yield from _idle_problems(config)
    yield from _misplaced(config)
    if config.group_protocol != "consumer":
        return
    if config.session_timeout_ms is not None:
        given["session.timeout.ms"] = config.session_timeout_ms
    for name in sorted(set(given) & set(_NOT_OF_CONSUMER_PROTOCOL)):
        yield f"the setting {name!r} does not go with group_protocol='consumer': there the broker has it; leave it away"
