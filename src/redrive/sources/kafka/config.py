"""
The configuration of a Kafka consumer.

Owns the names, defaults and bounds of the two configurations, and the error texts for wrong values; all problems are
reported at once. They are plain values: `environment` reads them from text. Knows no Kafka client.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import wraps
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import msgspec

from redrive.core.classify import KAFKA, Rules
from redrive.core.policy import RetryPolicy
from redrive.errors import PolicyError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redrive.core.policy import ErrorNames
    from redrive.sources.kafka.records.dead_letter import DeadLetterCodec, DeadLetterNames

Ordering = Literal["key_hash", "partition", "unordered"]
Mode = Literal["async", "process"]
Protocol = Literal["classic", "consumer"]
StallPolicy = Literal["warn", "dlq_head", "leave_group"]
_MIB = 1024 * 1024
_TRACED = msgspec.structs.replace(KAFKA, is_traced=True)
_DAY_MS = 86_400_000
_LONGEST_TOPIC = 249
_MOST_STARTS = 12  # the note beside an offset has one digit, and three more are needed to convict a record
_TOPIC_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_NOT_OF_CONSUMER_PROTOCOL = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "partition.assignment.strategy",
    "group.protocol.type",
)
# While a broker is away a client says so dozens of times a second; whoever has one says it in words, once.
_CRITICAL = 2
# A client ignores a setting that is for the other kind; from `settings` it gets its own.
_NOT_OF = {
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
# What the consumer's promises rest on; another value would break them without a word.
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
_INSTEAD = {  # what says it in our own words
    "message.timeout.ms": "dlq_flush_timeout_ms",
    "transactional.id": "transactional_id",
    "transaction.timeout.ms": "transaction_timeout_ms",
    "group.id": "group",
    "bootstrap.servers": "bootstrap_servers",
    "group.protocol": "group_protocol",
}
_SECURITY = (
    "security_protocol",
    "sasl_mechanisms",
    "sasl_username",
    "sasl_password",
    "ssl_ca_location",
    "ssl_certificate_location",
    "ssl_key_location",
    "ssl_key_password",
)


_C = TypeVar("_C")


def _by_earlier_names(kind: type[_C]) -> type[_C]:
    """Let *kind* also take its keys in capitals, as an earlier consumer wrote some of them."""
    made: Any = kind.__init__

    @wraps(made)
    def init(self: _C, **given: Any) -> None:
        known = {each.name.upper(): each.name for each in fields(kind)}  # type: ignore[arg-type]  # a dataclass
        twice = [name for name in given if name in known and known[name] in given]
        _refuse([f"{name} and {known[name]} are the same key; give one of them" for name in twice])
        made(self, **{known.get(name, name): value for name, value in given.items()})

    setattr(kind, "__init__", init)  # noqa: B010 - a type checker does not let us say it plainly
    return kind


@_by_earlier_names
@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionConfig:
    """
    How work items run and how often they are tried; raises SettingsError with every problem at once.

    *max_retries* is the number of tries, the first included: 1 means one try. Waits are
    min(*retry_backoff_ms* · 2^(n-1), *max_retry_backoff_ms*) plus up to *retry_jitter_ms*; without
    *exponential_backoff* they are min(*retry_backoff_ms*, *max_retry_backoff_ms*) and the jitter.
    """

    mode: Mode = "async"
    max_in_flight: int = 1000  # work items that run at once; those that wait for a retry do not count
    adaptive_concurrency: bool = False  # run fewer than max_in_flight while tries fail or become slow
    min_in_flight: int = 0  # … but never fewer than this; 0: a quarter of max_in_flight
    adaptive_interval_ms: int = 1000  # how often that is thought over
    max_retries: int = 3
    retry_backoff_ms: int = 1000
    exponential_backoff: bool = True
    max_retry_backoff_ms: int = 30_000
    retry_jitter_ms: int = 200
    max_retry_time_ms: int | None = None  # from the first try on; no retry begins later
    task_timeout_ms: int | None = 30_000  # a try
    terminal_errors: ErrorNames = ()
    retryable_errors: ErrorNames = ()
    tracebacks: bool = False  # dead letters carry where their last error was raised, in a header
    batch_size: int | None = None  # the worker takes a list of up to so many records; None: one record
    worker_pool_size: int = 8  # threads, for workers that are not async
    process_count: int = 8
    max_revoke_grace_ms: int = 5000  # how long a partition that is taken away waits for what runs
    shutdown_drain_timeout_ms: int = 5000

    def __post_init__(self) -> None:
        """Check everything."""
        _refuse([*_type_problems(self, "execution"), *_execution_problems(self)])

    @property
    def policy(self) -> RetryPolicy:
        """The retry policy that these values describe."""
        base = RetryPolicy.kafka(
            self.retry_backoff_ms,
            self.max_retry_backoff_ms,
            self.retry_jitter_ms,
            self.exponential_backoff,
            self.max_retries,
        )
        return replace(
            base,
            total=None if self.max_retry_time_ms is None else self.max_retry_time_ms / 1000,
            terminal_errors=self.terminal_errors,
            retryable_errors=self.retryable_errors,
        )

    @property
    def rules(self) -> Rules:
        """How errors of a worker are judged, and what is kept of them."""
        return _TRACED if self.tracebacks else KAFKA

    @property
    def timeout(self) -> float | None:
        """Seconds that one try may take."""
        return None if self.task_timeout_ms is None else self.task_timeout_ms / 1000


@_by_earlier_names
@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """
    Where to consume, and what becomes of dead letters; raises SettingsError with every problem at once.

    *settings* are librdkafka's own and go to every client that knows them; *consumer_settings*
    and *producer_settings* to one of them.
    """

    bootstrap_servers: str | tuple[str, ...] = "localhost:9092"
    consumer_group: str = ""
    auto_offset_reset: str = "earliest"
    group_protocol: Protocol = "classic"
    group_instance_id: str | None = None  # static membership
    session_timeout_ms: int | None = None
    poll_batch_size: int = 1000
    queue_max_messages: int = 20_000  # records in memory that are neither handled nor dead-lettered
    message_cache_max_bytes: int = 64 * _MIB  # … and their bytes
    commit_interval_ms: int = 1000
    crash_loop_limit: int = 3  # starts without progress or a clean end, before records run one at a time; 0: never
    stall_after_ms: int = 60_000  # a partition whose watermark stands still for longer is reported
    stall_policy: StallPolicy = "warn"  # … or its first record becomes a dead letter, or the consumer leaves the group
    dlq_enabled: bool = True
    dlq_topic_suffix: str = ".dlq"
    dlq_create_topics: bool = True
    dlq_retention_ms: int = 30 * _DAY_MS  # of topics that are created here
    dlq_flush_timeout_ms: int = 5000  # how long one publish may take
    dlq_spill_folder: str = ""  # where values go that are too large for the dead-letter topic
    dlq_oversize: str = "halt"  # … or, without it: halt the partition, or pointer: cut them and name the source record
    dlq_flood_limit: int = 0  # so many failures in a row, without a success, pause the consumer; 0: never
    dlq_flood_cooldown_ms: int = 5000  # how long it then waits before it tries one of them again
    dlq_park_keys: bool = False  # after a dead letter, later records of its key go behind it until it is released
    exactly_once: bool = False  # outputs, dead letters and offsets in one transaction
    transactional_id: str = ""  # of this instance, and of no other; made up if empty
    transaction_timeout_ms: int = 15_000  # after which the broker aborts what a dead instance left open
    security_protocol: str | None = None
    sasl_mechanisms: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    consumer_settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    producer_settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    dlq_names: DeadLetterNames | None = None  # in place of the suffix; for code, not for the environment
    dlq_codec: DeadLetterCodec | None = None  # in place of headers; for code, not for the environment

    def __post_init__(self) -> None:
        """Check everything."""
        _refuse([*_type_problems(self, "kafka"), *_kafka_problems(self)])

    def dlq_topic(self, topic: str) -> str:
        """Return the dead-letter topic of *topic*."""
        return f"{topic}{self.dlq_topic_suffix}" if self.dlq_names is None else self.dlq_names.topic_of(topic)

    def source_topic(self, topic: str) -> str:
        """Return the source of the dead-letter topic *topic*."""
        if self.dlq_names is not None:
            return self.dlq_names.source_of(topic)
        return topic.removesuffix(self.dlq_topic_suffix)

    @property
    def dlq_patterns(self) -> tuple[str, ...]:
        """Regular expressions that match all dead-letter topics, as librdkafka reads them."""
        if self.dlq_names is not None:
            return (self.dlq_names.pattern,) if self.dlq_names.pattern else ()
        suffix = self.dlq_topic_suffix.replace(".", "\\.")
        return f"^.*{suffix}$", f"^.*{suffix}\\.parked$"

    def client_settings(self, kind: Literal["consumer", "producer"]) -> dict[str, Any]:
        """Return librdkafka's settings for a client of *kind*; an admin client is a producer."""
        servers = self.bootstrap_servers
        plain = {name: getattr(self, name) for name in _SECURITY}
        return {
            "log_level": _CRITICAL,
            "bootstrap.servers": servers if isinstance(servers, str) else ",".join(servers),
            **{name.replace("_", "."): value for name, value in plain.items() if value is not None},
            **{name: value for name, value in self.settings.items() if name not in _NOT_OF[kind]},
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


# ---------------------------------------------------------------------- what makes sense

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


def _refuse(problems: list[str]) -> None:
    if problems:
        raise SettingsError(problems)


def _type_problems(config: Any, room: str) -> Iterator[str]:
    for each in fields(config):
        name, value = each.name, getattr(config, each.name)
        if name in LEAST and not _is_number(value, name):
            hint = _HINTS.get(name, "")
            yield f"{room}.{name} is {value!r} and must be a whole number from {LEAST[name]} up{hint}"
        elif name in FLAGS and not isinstance(value, bool):
            yield f"{room}.{name} is {value!r} and must be true or false"


_MOST_AT_ONCE = 1_000_000  # records that the client hands over in one call


def _is_number(value: object, name: str) -> bool:
    if value is None:
        return name in MAY_BE_NONE
    return type(value) is int and isfinite(value) and value >= LEAST[name]


def _execution_problems(config: ExecutionConfig) -> Iterator[str]:
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


def _kafka_problems(config: KafkaConfig) -> Iterator[str]:
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


def _idle_problems(config: KafkaConfig) -> Iterator[str]:
    """Say which settings would be ignored: whoever gives one relies on it."""
    defaults = {each.name: each.default for each in fields(config)}
    for name in _NOT_EXACT if config.exactly_once else ():
        if getattr(config, name) not in (defaults[name], 0):
            yield f"kafka.{name} does nothing where kafka.exactly_once is on; leave it away"


def _misplaced(config: KafkaConfig) -> Iterator[str]:
    for kind, given, other in (
        ("consumer", config.consumer_settings, "producer"),
        ("producer", config.producer_settings, "consumer"),
    ):
        for name in sorted(set(given) & _NOT_OF[kind]):
            yield f"kafka.{kind}_settings has {name!r}, which only a {other} takes; put it into kafka.{other}_settings"


def _suffix_problem(suffix: object) -> str:
    if not isinstance(suffix, str) or not suffix:
        return "it is empty, so dead letters would go back to their own topic; use '.dlq'"
    return topic_problem(f"t{suffix}")


def _setting_problems(config: KafkaConfig) -> Iterator[str]:
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
