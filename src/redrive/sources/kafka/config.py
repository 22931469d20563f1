"""
The configuration of a Kafka consumer.

Owns the names and defaults of the two configurations; `config_checks` reports all their problems at once. They are
plain values: `environment` reads them from text. Knows no Kafka client.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from redrive.core.classify import KAFKA, Rules
from redrive.core.policy import RetryPolicy
from redrive.errors import SettingsError
from redrive.sources.kafka.config_checks import NOT_OF, execution_problems, kafka_problems, type_problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redrive.core.policy import ErrorNames
    from redrive.sources.kafka.config_checks import Mode, Protocol, StallPolicy
    from redrive.sources.kafka.records.dead_letter import DeadLetterCodec, DeadLetterNames

_MIB = 1024 * 1024
_TRACED = msgspec.structs.replace(KAFKA, is_traced=True)
_DAY_MS = 86_400_000
_CRITICAL = 2  # a log level: while a broker is away, the client would log it dozens of times a second; we log it once
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


def _refuse(problems: list[str]) -> None:
    if problems:
        raise SettingsError(problems)


def _by_earlier_names(kind: type[_C]) -> type[_C]:
    """Let *kind* also accept its keys in capitals, as an earlier consumer named some of them."""
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
    How work items run and how often they are tried; raises SettingsError with every problem.

    *max_retries* is the number of tries, the first included: 1 means one try. Waits are
    min(*retry_backoff_ms* · 2^(n-1), *max_retry_backoff_ms*) plus up to *retry_jitter_ms*; without
    *exponential_backoff* they are min(*retry_backoff_ms*, *max_retry_backoff_ms*) and the jitter.
    """

    mode: Mode = "async"
    max_in_flight: int = 1000  # work items that run at once; those that wait for a retry do not count
    adaptive_concurrency: bool = False  # run fewer than max_in_flight while tries fail or become slow
    min_in_flight: int = 0  # the fewest that adaptive_concurrency runs; 0: a quarter of max_in_flight
    adaptive_interval_ms: int = 1000  # how often adaptive_concurrency decides
    max_retries: int = 3
    retry_backoff_ms: int = 1000
    exponential_backoff: bool = True
    max_retry_backoff_ms: int = 30_000
    retry_jitter_ms: int = 200
    max_retry_time_ms: int | None = None  # from the first try on; no retry begins later
    task_timeout_ms: int | None = 30_000  # a try
    terminal_errors: ErrorNames = ()
    retryable_errors: ErrorNames = ()
    tracebacks: bool = False  # dead letters have the traceback of their last error in a header
    batch_size: int | None = None  # the worker takes a list of up to so many records; None: one record
    worker_pool_size: int = 8  # threads, for workers that are not async
    process_count: int = 8
    max_revoke_grace_ms: int = 5000  # how long a revoked partition waits for running records
    shutdown_drain_timeout_ms: int = 5000

    def __post_init__(self) -> None:
        """Check everything."""
        _refuse([*type_problems(self, "execution"), *execution_problems(self)])

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
        """How a worker's errors are classified, and what is kept of them."""
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
    message_cache_max_bytes: int = 64 * _MIB  # bytes of these records
    commit_interval_ms: int = 1000
    crash_loop_limit: int = 3  # starts without progress or a clean end, before records run one at a time; 0: never
    stall_after_ms: int = 60_000  # a partition whose watermark stands still for longer is reported
    stall_policy: StallPolicy = "warn"  # dlq_head dead-letters its first record, leave_group stops the consumer
    dlq_enabled: bool = True
    dlq_topic_suffix: str = ".dlq"
    dlq_create_topics: bool = True
    dlq_retention_ms: int = 30 * _DAY_MS  # of topics that are created here
    dlq_flush_timeout_ms: int = 5000  # how long one publish may take
    dlq_spill_folder: str = ""  # where values go that are too large for the dead-letter topic
    dlq_oversize: str = "halt"  # without a spill folder: halt the partition, or pointer: cut values and name the source
    dlq_flood_limit: int = 0  # failures in a row, without a success, that pause the consumer; 0: never
    dlq_flood_cooldown_ms: int = 5000  # how long it then waits before it tries one of them again
    dlq_park_keys: bool = False  # after a dead letter, later records of its key follow it until the key is unparked
    exactly_once: bool = False  # outputs, dead letters and offsets in one transaction
    transactional_id: str = ""  # unique to this instance; generated if empty
    transaction_timeout_ms: int = 15_000  # after which the broker aborts the open transaction of a dead instance
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
        _refuse([*type_problems(self, "kafka"), *kafka_problems(self)])

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
            **{name: value for name, value in self.settings.items() if name not in NOT_OF[kind]},
        }
