"""
A graph from YAML, JSON or plain values.

Owns the keys of the file and their types: every wrong one is reported at once, with its node and the way out. What
makes sense is in `checking`. Knows no gRPC and no Kafka.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec
import re2

from redrive.core.checks.did_you_mean import did_you_mean
from redrive.errors import SettingsError
from redrive.sources.pipeline.graph.checking import problems_of
from redrive.sources.pipeline.graph.model import Edge, Graph, Node
from redrive.sources.pipeline.graph.problems import GraphProblem, errors

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SPAN = re2.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)\s*$")
_SPANS = {"initial_backoff", "keepalive", "max_backoff", "open_for", "timeout"}  # seconds, or text such as "500ms"
_EARLIER = {"condition": "when", "max_attempts": "max_retries", "kafka_input_topic": "input", "dlq_config": "dlq"}
_WRONG = object()
# So that the rest of a graph is checked too when these are missing.
_STAND_INS: dict[type[Any], dict[str, Any]] = {Graph: {"env": "env", "nodes": ()}, Node: {"module": "localhost:0"}}
_LONGEST_SHOWN = 60  # characters of a wrong value
_BITS = 1000  # Python refuses to write out numbers that are much larger


class Examined(msgspec.Struct, frozen=True):
    """What a text came to: the graph, if it has no error, and every problem."""

    graph: Graph | None
    problems: list[GraphProblem]


def load_graph(path: str | Path) -> Graph:
    """Return the graph in the file at *path*; raise SettingsError with every problem."""
    return _accepted(examine_file(path), str(path))


def parse(text: str) -> Graph:
    """Return the graph that YAML or JSON *text* describes; raise SettingsError with every problem."""
    return _accepted(examine(text), "the graph")


def examine_file(path: str | Path) -> Examined:
    """Return what the file at *path* came to; raise SettingsError if it cannot be read at all."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise SettingsError([f"cannot read the graph {str(path)!r}: {error}"]) from None
    return examine(text)


def examine(text: str) -> Examined:
    """Return what YAML or JSON *text* came to, with every problem."""
    from redrive.sources.pipeline.graph.yaml_text import plain_values  # noqa: PLC0415 - of the extra `pipeline`

    try:
        values = plain_values(text)
    except SettingsError as error:
        return Examined(None, [GraphProblem("graph", "", problem) for problem in error.problems])
    return examine_values(values)


def examine_values(values: Any) -> Examined:
    """Return what plain *values* came to, with every problem."""
    if not isinstance(values, dict):
        return Examined(None, [GraphProblem("graph", "", "it must be a mapping with `env` and `nodes`")])
    if not _is_unicode(values):
        return Examined(None, [GraphProblem("graph", "", "a text in it has half of a character (a lone surrogate)")])
    problems: list[GraphProblem] = []
    given = dict(values)
    for key, kind in (("nodes", Node), ("edges", Edge)):
        if key in given:
            given[key] = _all_of(kind, given[key], key, problems)
    graph: Graph = _made(Graph, given, "graph", "", problems)
    graph = graph if "version" in given else msgspec.structs.replace(graph, version=_version(graph))
    problems += problems_of(graph)
    return Examined(None if errors(problems) else graph, problems)


def _is_unicode(values: Any) -> bool:
    """Return whether every text in *values* can be written as UTF-8, as Kafka, gRPC and patterns need it."""
    left: list[Any] = [values]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if isinstance(each, str) and not each.isascii() and any("\ud800" <= letter <= "\udfff" for letter in each):
            return False
        if isinstance(each, dict | list | tuple) and id(each) not in seen:
            seen.add(id(each))
            left += [*each, *each.values()] if isinstance(each, dict) else each
    return True


def _accepted(examined: Examined, name: str) -> Graph:
    if examined.graph is None:
        raise SettingsError([f"{name}: {problem}" for problem in errors(examined.problems)])
    return examined.graph


def _version(graph: Graph) -> int:
    """Return a number that changes with the graph."""
    return int.from_bytes(hashlib.sha256(msgspec.json.encode(graph, order="deterministic")).digest()[:6])


def _all_of(kind: type[Any], given: Any, key: str, problems: list[GraphProblem]) -> Any:
    if not isinstance(given, list):
        problems.append(GraphProblem("graph", key, f"it must be a list, and is {_shown(given)}"))
        return ()
    made = [_made(kind, each, _where(key, each, at), "", problems) for at, each in enumerate(given, 1)]
    return tuple(each for each in made if each is not None)


def _where(key: str, given: Any, at: int) -> str:
    parts: Mapping[Any, Any] = given if isinstance(given, dict) else {}
    if key == "nodes":
        return f"node {_cut(parts['id'])}" if isinstance(parts.get("id"), str) else f"node {at}"
    if isinstance(parts.get("from"), str) and isinstance(parts.get("to"), str):
        return f"edge {_cut(parts['from'])}->{_cut(parts['to'])}"
    return f"edge {at}"


def _made(kind: type[Any], given: Any, where: str, path: str, problems: list[GraphProblem]) -> Any:
    """Return the Struct *kind* of what was *given*, with defaults for what is wrong; nothing if too much is missing."""
    if not isinstance(given, dict):
        problems.append(GraphProblem(where, path, f"it must be a mapping of keys, and is {_shown(given)}"))
        return None
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    types = get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in given.items():
        place = f"{path}.{_cut(key)}" if path else _cut(key)
        if key not in fields:
            problems.append(GraphProblem(where, place, f"there is no such key{_meant(key, fields)}"))
            continue
        made = _value(types[fields[key].name], value, where, place, problems)
        values |= {} if made is _WRONG else {fields[key].name: made}
    needed = [name for name, field in fields.items() if field.required]
    problems += [
        GraphProblem(where, f"{path}.{name}" if path else name, "it is missing") for name in needed if name not in given
    ]
    values = _STAND_INS.get(kind, {}) | values
    return kind(**values) if all(fields[name].name in values for name in needed) else None


def _value(kind: Any, given: Any, where: str, path: str, problems: list[GraphProblem]) -> Any:
    inner = [each for each in get_args(kind) if each is not NoneType] if NoneType in get_args(kind) else [kind]
    struct = inner[0] if isinstance(inner[0], type) and issubclass(inner[0], msgspec.Struct) else None
    if struct is not None and given is not None:
        made = _made(struct, given, where, path, problems)
        return _WRONG if made is None else made
    if path.rpartition(".")[2] in _SPANS:
        return _seconds(given, where, path, problems)
    try:
        return msgspec.convert(given, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        problems.append(GraphProblem(where, path, f"{_cut(error)}; it is {_shown(given)}"))
        return _WRONG


def _seconds(given: Any, where: str, path: str, problems: list[GraphProblem]) -> Any:
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given) if abs(given) < 10**15 else float("inf")
    found = _SPAN.match(given) if isinstance(given, str) else None
    if found:
        return float(found.group(1)) * _UNITS[found.group(2)]
    problems.append(GraphProblem(where, path, f"{_shown(given)} is no time; write 30s, 500ms, 2m or seconds"))
    return _WRONG


def _meant(key: Any, fields: Mapping[str, Any]) -> str:
    if isinstance(key, str) and _EARLIER.get(key) in fields:
        return f"; write {_EARLIER[key]}"
    return did_you_mean(key, fields) if isinstance(key, str) else ""


def _shown(value: Any) -> str:
    if isinstance(value, dict | list | tuple | set):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(_cut(value)) if isinstance(value, str) else _cut(value)


def _cut(value: Any) -> str:
    text = "a very large number" if isinstance(value, int) and value.bit_length() > _BITS else str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
