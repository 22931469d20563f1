# ruff: noqa: INP001 - it stands beside generate.py, which is run by path
"""
The parts on names in Python: what the package exports, methods, the Kafka consumer's classes.

Owns how a signature and a class become text of a page. Knows no page.
"""

from __future__ import annotations

import inspect
from enum import Enum
from typing import TYPE_CHECKING, Any

from page_tables import first_line, paragraphs, table

import redrive
from redrive.drafts import make_draft
from redrive.sources import kafka
from redrive.sources.kafka.config import ExecutionConfig, KafkaConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def public_names() -> str:
    """Return a table of what `redrive` exports."""
    rows = ((f"`{name}`", _meaning(name)) for name in redrive.__all__)
    return table(("name", "is"), rows)


def _meaning(name: str) -> str:
    thing = getattr(redrive, name)
    said = {
        "__version__": "The version of this release.",
        "DEFAULT_RETRY_POLICY": f"What a handler gets that names no policy: `{redrive.DEFAULT_RETRY_POLICY.text}`.",
        "TerminalHandlerError": "Another name of `Reject`.",
    }
    return said.get(name) or first_line(thing)


def methods_of(kind: type) -> Callable[[], str]:
    """Return a function that lists the public methods of *kind*."""
    return lambda: "\n\n".join(_method(name, thing) for name, thing in _own_methods(kind))


def _is_method(thing: object) -> bool:
    return inspect.isfunction(thing) or isinstance(thing, property | classmethod)


def _method(name: str, thing: Any) -> str:
    if isinstance(thing, property):
        return f"`{name}`\n: {first_line(thing)}"
    function = thing.__func__ if isinstance(thing, classmethod) else inspect.unwrap(thing)
    signature = ", ".join(_parameters(inspect.signature(function)))
    word = "await " if inspect.iscoroutinefunction(function) else ""
    return f"`{word}{name}({signature})`\n: {first_line(thing)}"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    star = False
    for name, parameter in _options_spelled(signature):
        if name in ("self", "cls") or "Never" in str(parameter.annotation):  # it takes what it refuses
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        star = star or parameter.kind is parameter.VAR_POSITIONAL
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        yield f"{prefix}{name}{_default(parameter)}"


def _options_spelled(signature: inspect.Signature) -> Iterator[tuple[str, inspect.Parameter]]:
    """Yield the parameters, and for the options of a letter each one of them."""
    for name, parameter in signature.parameters.items():
        if "DraftOptions" not in str(parameter.annotation):
            yield name, parameter
            continue
        taken = inspect.signature(make_draft).parameters.items()
        yield from ((name, each) for name, each in taken if each.kind is each.KEYWORD_ONLY)


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return ""
    value = parameter.default
    if inspect.isfunction(value) or str(value) == "<factory>":
        return "=…"
    return f"={value.name.lower() if hasattr(value, 'name') else value!r}".replace("|", "/")


def kafka_parts() -> str:
    """Return a section for each public name of `redrive.sources.kafka`: signature, promises, fields, methods."""
    return "\n\n".join(_kafka_part(name, getattr(kafka, name)) for name in kafka.__all__)


def _kafka_part(name: str, thing: Any) -> str:
    if inspect.isfunction(thing):
        return f"### {name}\n\n{_promised(name, thing)}"
    if thing.__name__ != name:
        return f"### {name}\n\nThe name of [{thing.__name__}](#{thing.__name__.lower()}) until 0.1. {first_line(thing)}"
    return _part(name, thing)


def _part(name: str, kind: Any) -> str:
    parts = [f"### {name}", *(line for base in _ours(kind) for line in paragraphs(base))]
    if kind in (ExecutionConfig, KafkaConfig):
        parts.insert(1, f"`{name}(*, …)`: [all keys](kafka-settings.md#{name.lower()}).")
    elif issubclass(kind, Enum):
        parts.append(", ".join(f"`{each.name}` (`{each.value}`)" for each in kind))
    elif getattr(kind, "_is_protocol", False):
        parts.append("A protocol: any object with these methods will do.")
    else:
        parts.insert(1, f"`{name}({', '.join(_parameters(inspect.signature(kind)))})`")
    return "\n\n".join([*parts, *(_promised(each, thing) for each, thing in _own_methods(kind))])


def _own_methods(kind: Any) -> list[tuple[str, Any]]:
    """Return the public methods of *kind*, those that it has from a class of ours included."""
    found = {name: thing for base in reversed(_ours(kind)) for name, thing in vars(base).items() if name[0] != "_"}
    return [(name, thing) for name, thing in found.items() if _is_method(thing)]


def _ours(kind: Any) -> list[Any]:
    return [base for base in kind.__mro__ if base.__module__.startswith("redrive.")]


def _promised(name: str, thing: Any) -> str:
    """Return a method with its whole docstring."""
    return "\n\n    ".join([_method(name, thing), *paragraphs(thing)[1:]])
