"""
The configurations of a Kafka consumer from environment variables.

Owns the names of the variables, how their texts are parsed, the names that an earlier consumer had for them, and
which unknown names look like a typing error. The caller passes the variables; the value of one that may hold a secret
is never shown. Knows neither defaults nor bounds.
"""

from __future__ import annotations

import difflib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.errors import SettingsError
from redrive.sources.kafka.config import ExecutionConfig, KafkaConfig
from redrive.sources.kafka.config_checks import FLAGS, IN_CODE, LEAST, MAY_BE_NONE

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIXES: dict[str, Any] = {"EXECUTION_": ExecutionConfig, "KAFKA_": KafkaConfig}
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})
_LISTS = frozenset({"terminal_errors", "retryable_errors", "bootstrap_servers"})
_OBJECTS = frozenset({"settings", "consumer_settings", "producer_settings"})
_LIST, _OBJECT = list[str], dict[str, str | int | float | bool]
_NO_LIST = 'begins like a JSON list but is no list of texts; write ["a", "b"], or a,b'
_NO_OBJECT = (  # the value may be a secret
    'is no JSON object of texts, numbers, true and false, such as {"client.id": "shop"}; its value is not shown'
)
_CLOSE = 0.85  # similarity from which an unknown variable counts as a typing error


def read_configs(
    variables: Mapping[str, str],
    *,
    execution: Mapping[str, Any] | None = None,
    kafka: Mapping[str, Any] | None = None,
) -> tuple[ExecutionConfig, KafkaConfig]:
    """
    Return both configurations from `EXECUTION_MAX_RETRIES`, `KAFKA_DLQ_ENABLED` … in *variables*.

    Values in *execution* and *kafka* win. Raise SettingsError with every problem of both.
    """
    mode = (execution or {}).get("mode") or variables.get("EXECUTION_MODE", "").strip()
    texts = {**_earlier(variables, mode), **variables}
    problems: list[str] = []
    made: list[Any] = []
    for (prefix, kind), given in zip(_PREFIXES.items(), (execution or {}, kafka or {}), strict=True):
        values, unreadable = _from_texts(prefix, kind, texts)
        problems += [why for name, why in unreadable.items() if name not in given]
        try:
            made.append(kind(**{**values, **given}))
        except SettingsError as error:
            problems += error.problems
    if problems:
        raise SettingsError(problems)
    return made[0], made[1]


def unread(variables: Mapping[str, str]) -> list[str]:
    """Return a sentence for each of *variables* that seems to be meant for a Kafka consumer and is not read."""
    known = list(_known())
    told = {name: _slip(name, known) for name in sorted(variables) if name not in known and _now(name) is None}
    return [f"the variable {name} is not read: {why}" for name, why in told.items() if why]


def _slip(name: str, known: list[str]) -> str:
    """Return what is wrong with *name*, or nothing: `KAFKA_…` may belong to another program."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=_CLOSE)
    if close and name.startswith(tuple(_PREFIXES)):
        return f"did you mean {close[0]}?"
    is_nested = "__" in name and name.startswith(tuple(_PREFIXES))
    is_theirs = is_nested or name.startswith("PARALLEL_CONSUMER_") or name in _ONLY_EARLIER
    return "neither ExecutionConfig nor KafkaConfig has such a key" if is_theirs else ""


def _fields(kind: Any) -> list[Any]:
    """Return the fields of *kind* that text can express."""
    return [each for each in fields(kind) if each.name not in IN_CODE]


def _known() -> dict[str, str]:
    return {f"{prefix}{each.name}".upper(): each.name for prefix, kind in _PREFIXES.items() for each in _fields(kind)}


# ---------------------------------------------------------------------- names of an earlier consumer

_NESTED = (  # prefixes of nested settings; the order matters
    ("KAFKA_PARALLEL_CONSUMER__", "PARALLEL_CONSUMER_"),
    ("PARALLEL_CONSUMER_EXECUTION__", "EXECUTION_"),
    ("EXECUTION_PROCESS_CONFIG__", "PROCESS_"),
)
_EARLIER = {  # our own name, and the mode in which the old one had an effect
    "PARALLEL_CONSUMER_POLL_BATCH_SIZE": ("KAFKA_POLL_BATCH_SIZE", ""),
    "PARALLEL_CONSUMER_QUEUE_MAX_MESSAGES": ("KAFKA_QUEUE_MAX_MESSAGES", ""),
    "PARALLEL_CONSUMER_MESSAGE_CACHE_MAX_BYTES": ("KAFKA_MESSAGE_CACHE_MAX_BYTES", ""),
    "PARALLEL_CONSUMER_WORKER_POOL_SIZE": ("EXECUTION_WORKER_POOL_SIZE", ""),
    "PROCESS_PROCESS_COUNT": ("EXECUTION_PROCESS_COUNT", ""),
    "PROCESS_TASK_TIMEOUT_MS": ("EXECUTION_TASK_TIMEOUT_MS", "process"),
    "EXECUTION_ASYNC_CONFIG__TASK_TIMEOUT_MS": ("EXECUTION_TASK_TIMEOUT_MS", "async"),
    "EXECUTION_ASYNC_CONFIG__SHUTDOWN_GRACE_TIMEOUT_MS": ("EXECUTION_SHUTDOWN_DRAIN_TIMEOUT_MS", "async"),
}
_ONLY_EARLIER = frozenset({
    "EXECUTION_ASYNC_CONFIG", "EXECUTION_PROCESS_CONFIG", "KAFKA_DLQ_PAYLOAD_MODE", "KAFKA_ENABLE_AUTO_COMMIT",
    "KAFKA_METRICS", "KAFKA_PARALLEL_CONSUMER",
})  # fmt: skip


def _earlier(variables: Mapping[str, str], mode: str) -> dict[str, str]:
    """Return the values of earlier names by our names; a deeper nested one wins, as it did there."""
    found: dict[str, str] = {}
    for name in sorted(variables, key=lambda each: each.count("__")):
        now = _now(name)
        if now is not None and now[1] in ("", mode or "async"):
            found[now[0]] = variables[name]
    return found


def _now(name: str) -> tuple[str, str] | None:
    """Return our name for an earlier *name* and the mode it is for, or None."""
    flat = name
    for before, after in _NESTED:
        if flat.startswith(before):
            flat = after + flat.removeprefix(before)
    return _EARLIER.get(flat) or ((flat, "") if flat != name and flat in _known() else None)


# ---------------------------------------------------------------------- values that arrive as text


def _from_texts(prefix: str, kind: Any, texts: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of *kind*, and the problems of those that cannot be parsed, both by key."""
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name in (each.name for each in _fields(kind)):
        variable = f"{prefix}{name}".upper()
        if variable not in texts:
            continue
        try:
            values[name] = _value(name, texts[variable])
        except ValueError:  # invalid JSON, or bytes that are no text
            problems[name] = f"{variable} {_NO_OBJECT if name in _OBJECTS else _NO_LIST}"
    return values, problems


def _value(name: str, text: str) -> Any:
    """Return *text* as the value of *name*; what cannot be parsed stays text, which the checks then refuse."""
    word = text.strip()
    if name in LEAST:
        return None if word.lower() == "none" and name in MAY_BE_NONE else _whole(word)
    if name in FLAGS:
        return True if word.lower() in _TRUE else False if word.lower() in _FALSE else word
    if name in _LISTS:
        listed = msgspec.json.decode(word, type=_LIST) if word.startswith("[") else word.split(",")
        return tuple(each.strip() for each in listed if each.strip())
    if name in _OBJECTS:
        return msgspec.json.decode(word, type=_OBJECT) if word else {}
    return word


def _whole(word: str) -> int | str:
    try:
        return int(word)
    except ValueError:
        return word
