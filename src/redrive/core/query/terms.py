"""
What one term of a query means.

Owns the fields a query may name and the reference meaning of every operator: each store
answers as `Term.matches` does, no matter how it compiles the term.
Knows nothing of what people type: `parsing` reads that, this file only writes the canonical form.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import re2

from redrive.core.letter import Category, Letter, Priority, Status

if TYPE_CHECKING:
    from collections.abc import Callable

Op = Literal["eq", "glob", "contains", "prefix", "gt", "ge", "lt", "le"]
Kind = Literal["text", "prefix", "word", "number", "span", "tree", "header"]
Value = str | float

SIGNS: dict[str, Op] = {">=": "ge", "<=": "le", ">": "gt", "<": "lt", "~": "contains"}
UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}

_NUMBER = re2.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")


class Field(msgspec.Struct, frozen=True):
    """One name a query may use: what kind of value it has and which attribute of the letter holds it."""

    kind: Kind
    attribute: str
    words: tuple[str, ...] = ()  # the only values there are


FIELDS: dict[str, Field] = {
    "id": Field("text", "id"),
    "status": Field("word", "status", tuple(str(status) for status in Status)),
    "queue": Field("text", "queue"),
    "kind": Field("text", "kind"),
    "category": Field("word", "category", tuple(str(category) for category in Category)),
    "error": Field("text", "last_error"),
    "error_type": Field("text", "error_type"),
    "group": Field("prefix", "fingerprint"),
    "key": Field("text", "key"),
    "idempotency_key": Field("text", "idempotency_key"),
    "priority": Field("word", "priority", tuple(priority.name.lower() for priority in Priority)),
    "attempts": Field("number", "attempts"),
    "losses": Field("number", "losses"),
    "cycles": Field("number", "cycles"),
    "generation": Field("number", "generation"),
    "origin": Field("text", "origin"),
    "tenant": Field("text", "tenant"),
    "handler": Field("text", "handler"),
    "release": Field("text", "release"),
    "policy": Field("text", "policy"),
    "why": Field("text", "why"),
    "plan": Field("text", "plan"),
    "age": Field("span", "created_us"),
    "failed": Field("span", "failed_us"),
    "due": Field("span", "due_us"),
    "metadata": Field("tree", "metadata"),
    "payload": Field("tree", "payload"),
    "header": Field("header", "headers"),
}


class Document:
    """A payload, decoded when it is first asked for and at most once."""

    __slots__ = ("_payload", "_tree")

    def __init__(self, payload: bytes) -> None:
        self._payload: bytes | None = payload
        self._tree: object = None

    def tree(self) -> object:
        """Return the decoded payload; None, in which no path leads anywhere, if it is not JSON."""
        if self._payload is not None:
            self._tree, self._payload = _decoded(self._payload), None
        return self._tree


class Term(msgspec.Struct, frozen=True):
    """
    One condition: the letter's *field* fits one of *values* by *op* (or none of them, if negated).

    *values* are numbers for comparisons and number fields (spans in seconds), text otherwise.
    *path* leads into `payload` and `metadata`, and names the `header`.
    A letter that has no such value fits no positive term, and every negated one.
    """

    field: str
    op: Op
    values: tuple[Value, ...]
    negated: bool = False
    path: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        """The attribute of the letter that the term looks at."""
        return FIELDS[self.field].attribute

    @property
    def micros(self) -> int:
        """The span of a term on `age`, `failed` or `due`, in whole microseconds."""
        return round(float(self.values[0]) * 1e6)

    def matches(self, letter: Letter, now_us: int) -> bool:
        """Say whether *letter* fits at the instant *now_us*."""
        return self.holds(letter, now_us, Document(letter.payload))

    def holds(self, letter: Letter, now_us: int, document: Document) -> bool:
        """Do as `matches` does, with a payload that other terms share."""
        test = _TESTS[self.op]
        seen = _seen(self, letter, now_us, document)
        return self.negated != any(test(found, wanted) for found in seen for wanted in self.values)

    def __str__(self) -> str:
        """Return the canonical text."""
        sign = _SIGN_OF.get(self.op, "")
        name = ".".join((self.field, *(quoted(step, unsafe='".:') for step in self.path)))
        return f"{'-' * self.negated}{name}:{sign}{','.join(self._written(value) for value in self.values)}"

    def _written(self, value: Value) -> str:
        if isinstance(value, float):
            return _span_text(value) if FIELDS[self.field].kind == "span" else _number_text(value)
        if self.op == "glob":
            return "*".join(quoted(piece) if piece else "" for piece in value.split("*")) or '""'
        return quoted(value)


# ---------------------------------------------------------------------- what the letter has


def _seen(term: Term, letter: Letter, now_us: int, document: Document) -> tuple[object, ...]:
    """Return the values that the term is about: none, one, or one per header of that name."""
    match FIELDS[term.field].kind:
        case "span":
            return _elapsed(term.field, getattr(letter, term.attribute), now_us)
        case "tree":
            return _descend(letter.metadata if term.field == "metadata" else document.tree(), term.path)
        case "header":
            return tuple(text for name, raw in letter.headers if name == term.path[0] for text in _as_text(raw))
    value = getattr(letter, term.attribute)
    if term.field == "priority":
        value = Priority(value).name.lower()
    return () if value is None else (value,)


def _elapsed(field: str, moment_us: int | None, now_us: int) -> tuple[float, ...]:
    """Return the seconds since the moment; until it, for `due`, which is negative once overdue."""
    if moment_us is None:
        return ()
    return ((moment_us - now_us if field == "due" else now_us - moment_us) / 1e6,)


def _descend(tree: object, path: tuple[str, ...]) -> tuple[object, ...]:
    """Return the scalar that *path* leads to; nothing if there is none."""
    for step in path:
        if isinstance(tree, dict) and step in tree:
            tree = tree[step]
        elif isinstance(tree, list | tuple) and step.isascii() and step.isdigit() and int(step) < len(tree):
            tree = tree[int(step)]
        else:
            return ()
    return (tree,) if tree is None or isinstance(tree, str | int | float) else ()


def _decoded(payload: bytes) -> object:
    try:
        return msgspec.json.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _as_text(raw: bytes) -> tuple[str, ...]:
    try:
        return (raw.decode(),)
    except UnicodeDecodeError:
        return ()


# ---------------------------------------------------------------------- the operators


def glob(pattern: str, text: str) -> bool:
    """Say whether *pattern* fits all of *text*; `*` stands for any run, also an empty one; nothing else is special."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == text
    *middle, last = rest
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for piece in middle:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def number(text: str) -> float | None:
    """Return the number that *text* writes as JSON would, exactly if it is whole; None if it writes none."""
    if not _NUMBER.fullmatch(text):
        return None
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: object) -> str:
    """Return a scalar as JSON writes it, strings without their quotes."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _equal(found: object, wanted: Value) -> bool:
    if _is_number(found):
        return found == (number(wanted) if isinstance(wanted, str) else wanted)
    return _text(found) == wanted


def _textual(test: Callable[[str, str], bool]) -> Callable[[object, Value], bool]:
    return lambda found, wanted: test(_text(found), str(wanted))


def _numeric(test: Callable[[Any, Any], bool]) -> Callable[[object, Value], bool]:
    return lambda found, wanted: _is_number(found) and test(found, wanted)


_TESTS: dict[Op, Callable[[object, Value], bool]] = {
    "eq": _equal,
    "glob": _textual(lambda text, pattern: glob(pattern, text)),
    "contains": _textual(lambda text, part: part.lower() in text.lower()),
    "prefix": _textual(str.startswith),
    "gt": _numeric(operator.gt),
    "ge": _numeric(operator.ge),
    "lt": _numeric(operator.lt),
    "le": _numeric(operator.le),
}


# ---------------------------------------------------------------------- the canonical text

_SIGN_OF: dict[Op, str] = {op: sign for sign, op in SIGNS.items()}


def quoted(text: str, *, unsafe: str = '"*,~<>') -> str:
    """Return *text* as a query writes it: bare where that reads back as the same, else in quotes."""
    if text and not any(char in unsafe or char.isspace() for char in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _number_text(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)  # noqa: PLR2004 - exact


def _span_text(seconds: float) -> str:
    for unit in ("w", "d", "h", "m"):
        if seconds and seconds % UNITS[unit] == 0:
            return f"{seconds / UNITS[unit]:.0f}{unit}"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"
