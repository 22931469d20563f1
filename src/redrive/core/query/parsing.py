r"""
The query language: one for listing, counting, planning, alerting, and for every store.

    query  = term*                         all must hold
    term   = ["-"] field ":" value         "-" negates it
           | ["-"] value                   a bare word: the error contains it
    value  = [sign] part ("," part)*       any of the parts
    sign   = "~"                           contains, in upper or lower case
           | ">" | ">=" | "<" | "<="       numbers and spans, one part only
    part   = bare text, in which * stands for any run of characters, and "quoted text", in
             which nothing is special but \" and \\; they may be joined: order."a b"*

    text     id (its end is enough) queue kind error error_type (or type) key idempotency_key origin tenant handler
             release policy why plan · group (its beginning is enough) · header.NAME
    words    status category priority
    numbers  attempts losses cycles generation
    spans    age (since it was accepted) failed (since it became a dead letter) due (until it is due;
             negative once overdue): 90, 90s, 1h30m, 2d, 1w, 500ms
    paths    payload.PATH metadata.PATH: names or list indices joined by dots, a name with a dot in
             quotes; compares with any scalar's text, numbers as numbers; null is a value

A field that a letter does not have fits no term and every negated one: `key:*` has a key, `-key:*`
has none. Text is compared with its case, except by "~".

Owns reading the text. `terms` says what a term means. Knows no store.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import msgspec
import re2

from redrive.core.letter.ids import is_short, tail_of
from redrive.core.query.terms import FIELDS, SIGNS, UNITS, Document, Field, Op, Term, Value, glob, number
from redrive.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redrive.core.letter import Letter

__all__ = ["FIELDS", "MAX_LENGTH", "MAX_TERMS", "Field", "Query", "Term", "glob", "parse", "require"]

MAX_LENGTH = 4_096  # characters
MAX_TERMS = 50
_MAX_NUMBER = 1e300
_SHOWN = 40  # characters of what was written, in a message
_MAX_SPAN = 1e10  # seconds, three centuries: its microseconds fit every store's integers
_ALIASES = {"type": "error_type"}
_COMPARISONS = ("gt", "ge", "lt", "le")
_SPAN = re2.compile(r"(-?)((?:\d{1,12}(?:\.\d{1,12})?(?:ms|[wdhms]))+)")
_SPAN_PART = re2.compile(r"(\d+(?:\.\d+)?)(ms|[wdhms])")

_Chars = list[tuple[str, bool]]  # each character, and whether it stood in quotes


class Query(msgspec.Struct, frozen=True):
    """Terms that must all hold, and their canonical *text*: parsing that gives the same query again."""

    terms: tuple[Term, ...] = ()
    text: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing, and so fits every letter."""
        return not self.terms

    @property
    def reads_payload(self) -> bool:
        """Whether it cannot be answered without the letters' payloads."""
        return any(term.field == "payload" for term in self.terms)

    def matches(self, letter: Letter, now_us: int) -> bool:
        """Say whether *letter* fits at the instant *now_us*: the meaning that every store keeps to."""
        document = Document(letter.payload)
        return all(term.holds(letter, now_us, document) for term in self.terms)

    def __str__(self) -> str:
        """Return the canonical text."""
        return self.text


def parse(text: str) -> Query:
    """Read *text*; raise QueryError, which marks the place, if it makes no sense or is too long."""
    _check_text(text)
    terms = tuple(_term(at, chars) for at, chars in _words(text))
    if len(terms) > MAX_TERMS:
        raise QueryError(f"cannot read the query: it has {len(terms)} terms, more than {MAX_TERMS}; ask for less")
    canonical = " ".join(str(term) for term in terms)
    _check_length(canonical)
    return Query(terms, canonical)


def require(query: Query) -> Query:
    """Return *query*; raise QueryError if it is empty, for a caller that is about to act on what it finds."""
    if query.is_empty:
        raise QueryError("an empty query never acts; say which letters are meant, such as `status:failed kind:order.*`")
    return query


# ---------------------------------------------------------------------- words


def _check_text(text: str) -> None:
    _check_length(text)
    for at, char in enumerate(text):
        if char == "\0" or "\ud800" <= char <= "\udfff":
            raise _unreadable(at, _no_text(char))


def _no_text(char: str) -> str:
    """Return what is wrong with a character that not every store can compare."""
    if char == "\0":
        return "a NUL cannot be searched for; leave it out"
    if "\udc80" <= char <= "\udcff":  # how Python hands over a byte of another encoding
        return f"the query is not UTF-8; write the byte as \\x{ord(char) & 0xFF:02x}"
    return f"{char!a} is half a character and cannot be searched for; leave it out"


def _check_length(text: str) -> None:
    if len(text) > MAX_LENGTH:
        raise QueryError(f"cannot read the query: it has {len(text)} characters, more than {MAX_LENGTH}; ask for less")


def _words(text: str) -> Iterator[tuple[int, _Chars]]:
    """Yield each word with its place; an opening quote leaves an empty mark, so that "" is not nothing."""
    chars: _Chars = []
    start = at = 0
    while at < len(text):
        if text[at] == '"':
            at = _quotation(text, at, chars)
        elif text[at].isspace():
            if chars:
                yield start, chars
            chars, start = [], at + 1
        else:
            chars.append((text[at], False))
        at += 1
    if chars:
        yield start, chars


def _quotation(text: str, start: int, chars: _Chars) -> int:
    """Add what is quoted from *start* on to *chars*; return where the closing quote stands."""
    chars.append(("", True))
    at = start + 1
    while at < len(text) and text[at] != '"':
        at += text[at] == "\\"
        chars.append((text[at : at + 1], True))
        at += 1
    if at >= len(text):
        raise _unreadable(start, 'this quote is never closed; add a " at the end, or write \\" for a quote itself')
    return at


def _plain(chars: _Chars) -> str:
    return "".join(char for char, _ in chars)


def _split(chars: _Chars, mark: str) -> list[_Chars]:
    """Split at every bare *mark*."""
    parts: list[_Chars] = [[]]
    for char in chars:
        if char == (mark, False):
            parts.append([])
        else:
            parts[-1].append(char)
    return parts


# ---------------------------------------------------------------------- terms


def _term(at: int, chars: _Chars) -> Term:
    negated = chars[0] == ("-", False)
    name, value = _cut(chars[negated:], ":")
    if value is None:
        return _text_term(at, "error", (), _parts(at, name, "contains"), negated=negated)
    field, path = _field(at, name)
    parts = _parts(at, value)
    build = {"number": _number_term, "span": _span_term, "word": _word_term}.get(FIELDS[field].kind, _text_term)
    return build(at, field, path, parts, negated=negated)


def _cut(chars: _Chars, mark: str) -> tuple[_Chars, _Chars | None]:
    """Cut at the first bare *mark*; None if there is none."""
    if (mark, False) not in chars:
        return chars, None
    at = chars.index((mark, False))
    return chars[:at], chars[at + 1 :]


def _field(at: int, chars: _Chars) -> tuple[str, tuple[str, ...]]:
    """Return the field's own name and the path after it."""
    first, rest = _cut(chars, ".")
    name = _ALIASES.get(_plain(first), _plain(first))
    if name not in FIELDS:
        raise _unknown(at, _plain(first))
    if FIELDS[name].kind not in ("tree", "header"):
        if rest is not None:
            raise _unreadable(at, f"{name!r} has no parts; write {name}:value")
        return name, ()
    steps = [rest or []] if name == "header" else _split(rest or [], ".")
    if not all(steps):
        raise _unreadable(at, f"{name!r} needs a name after each dot, such as {name}.user:42")
    return name, tuple(_plain(step) for step in steps)


class _Parts(msgspec.Struct, frozen=True):
    """The alternatives of a value, without the sign that holds for all of them."""

    op: Op | None
    parts: tuple[_Chars, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(_plain(part) for part in self.parts)

    @property
    def has_wildcard(self) -> bool:
        return any(("*", False) in part for part in self.parts)


def _parts(at: int, value: _Chars, op: Op | None = None) -> _Parts:
    """Split *value* at its commas; the first part's sign holds for all, the others may repeat it."""
    signed = [_signed(part) for part in _split(value, ",")]
    op = signed[0][0] or op
    if any(other not in (None, op) for other, _ in signed):
        raise _unreadable(at, "one value has two different signs; write two terms, or put the text in quotes")
    if not all(part for _, part in signed):
        raise _unreadable(at, 'a value is missing; "" stands for an empty text, and quotes keep a comma')
    if op in _COMPARISONS and len(signed) > 1:
        raise _unreadable(at, "a comparison takes one value; write two terms")
    return _Parts(op, tuple(part for _, part in signed))


def _signed(part: _Chars) -> tuple[Op | None, _Chars]:
    for sign, op in SIGNS.items():  # the longer ones first
        if part[: len(sign)] == [(char, False) for char in sign]:
            return op, part[len(sign) :]
    return None, part


# ---------------------------------------------------------------------- one kind of field each


def _text_term(at: int, field: str, path: tuple[str, ...], parts: _Parts, *, negated: bool) -> Term:
    if parts.op in _COMPARISONS:
        if FIELDS[field].kind != "tree":
            raise _unreadable(at, f"{field!r} is text and has no order; put the sign in quotes to look for it")
        return _number_term(at, field, path, parts, negated=negated)
    op: Op = parts.op or ("prefix" if FIELDS[field].kind == "prefix" else "eq")
    if parts.op is None and parts.has_wildcard:
        _check_stars(at, parts)
        op = "glob"
    if field == "id" and op == "eq" and any(is_short(text) for text in parts.texts):
        ends = tuple(f"*{tail_of(text)}" if is_short(text) else text for text in parts.texts)
        return Term(field, "glob", ends, negated, path)
    return Term(field, op, parts.texts, negated, path)


def _check_stars(at: int, parts: _Parts) -> None:
    if any(quoted and char == "*" for part in parts.parts for char, quoted in part):
        raise _unreadable(at, "one term has both the wildcard * and a quoted *; write two terms")


def _word_term(at: int, field: str, path: tuple[str, ...], parts: _Parts, *, negated: bool) -> Term:
    """Resolve to the words there are, so that a slip such as status:dead is not an empty answer."""
    text = _text_term(at, field, path, parts, negated=negated)
    known = FIELDS[field].words
    found = {word: [w for w in known if _fits(text.op, str(word).lower(), w)] for word in text.values}
    for word, fitting in found.items():
        if not fitting:
            raise _unreadable(at, f"{field!r} is never {_short(str(word))}{_meant(str(word), known)}")
    values = dict.fromkeys(w for fitting in found.values() for w in fitting)
    return Term(field, "eq", tuple(values), negated)


def _fits(op: Op, wanted: str, word: str) -> bool:
    return wanted in word if op == "contains" else glob(wanted, word) if op == "glob" else wanted == word


def _number_term(at: int, field: str, path: tuple[str, ...], parts: _Parts, *, negated: bool) -> Term:
    if parts.op == "contains":
        raise _unreadable(at, f"{field!r} is a number and has no parts; write {field}:3 or {field}:>3")
    values: list[Value] = []
    for text in parts.texts:
        value = number(text)
        if value is None or abs(value) > _MAX_NUMBER:
            raise _unreadable(at, f"{field!r} compares with numbers, and {_short(text)} is none; write 3 or >2.5")
        values.append(float(value))
    return Term(field, parts.op or "eq", tuple(values), negated, path)


def _span_term(at: int, field: str, path: tuple[str, ...], parts: _Parts, *, negated: bool) -> Term:
    if parts.op not in _COMPARISONS:
        raise _unreadable(at, f"{field!r} is a span and needs a comparison; write {field}:>1h or {field}:<=30m")
    text = parts.texts[0]
    seconds = _seconds(text)
    if seconds is None or abs(seconds) > _MAX_SPAN:
        raise _unreadable(at, f"{_short(text)} is not a span; write 90s, 5m, 1h30m, 2d, 1w or 500ms")
    return Term(field, parts.op, (round(float(seconds), 6),), negated, path)


def _seconds(text: str) -> float | None:
    """Return the span in seconds; a number alone is one too."""
    if (whole := _SPAN.fullmatch(text)) is None:
        return number(text)
    size = sum(float(count) * UNITS[unit] for count, unit in _SPAN_PART.findall(text))
    return -size if whole[1] else size


# ---------------------------------------------------------------------- messages


def _unreadable(at: int, why: str) -> QueryError:
    return QueryError(f"cannot read the query at character {at + 1}: {why}")


def _unknown(at: int, name: str) -> QueryError:
    known = [*FIELDS, *_ALIASES]
    return _unreadable(at, f"there is no field {_short(name)}{_meant(name, known)}; quotes keep a colon as text")


def _meant(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word[:_SHOWN].lower(), known, n=1)
    hint = f", did you mean {near[0]!r}?" if near else ";"
    return f"{hint} there are {', '.join(known)}"


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
