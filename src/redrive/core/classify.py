"""
What kind of failure it was, and whether it can heal.

Owns the order in which an error is judged: what the handler said itself, the policy's
lists, the error's type and its causes, a status it carries, errno, its text, the
default. The answer says which rule matched. Knows no delay and no state: `decide` does.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from math import isnan, nan
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from redrive.core.failures import known
from redrive.core.failures.describe import (
    MESSAGE_LIMIT,
    NAME_LIMIT,
    causes,
    clean,
    describe,
    leaves,
    own_text,
    peek,
    say,
    text_of,
    type_name,
)
from redrive.core.failures.fingerprint import Fingerprint, fingerprint
from redrive.core.failures.known import Meaning
from redrive.core.letter import Category, Failure
from redrive.core.policy import DEFAULT_RETRY_POLICY, LONGEST
from redrive.errors import Reject, RetryAfter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from redrive.core.policy import ErrorNames, RetryPolicy

_RULE_LIMIT = 500  # characters; rules quote names of classes and codes, which strangers choose
_NO_FINGERPRINT = Fingerprint("", "", "")
_REJECTS = {"Reject", "TerminalHandlerError", "redrive.errors.Reject", "redrive.Reject", "redrive.TerminalHandlerError"}
_HOPELESS = frozenset({Category.PERMISSION, Category.VALIDATION, Category.PERMANENT})


class Undecodable(Exception):
    """The payload does not decode to what the handler takes; raised `from` the decoder's own error."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a source thinks of errors: which are terminal, and what an unknown one is."""

    name: str
    unknown: Category = Category.TRANSIENT
    terminal_meanings: frozenset[Meaning] = frozenset()
    terminal_categories: frozenset[Category] = frozenset()
    undecodable_is_terminal: bool = True
    reads_texts: bool = False  # text decides for exceptions, too, and a plain ValueError is a validation failure
    is_grouped: bool = True  # frames and fingerprint are kept; where nobody groups, every retry would pay for them
    is_traced: bool = True  # the traceback is kept


HANDLER = Rules(name="handler", terminal_meanings=frozenset({Meaning.INTEGRITY, Meaning.INVALID}))  # on every store
RELAY = Rules(name="relay", terminal_categories=_HOPELESS)
KAFKA = Rules(name="kafka", undecodable_is_terminal=False, is_grouped=False, is_traced=False)
INBOX = Rules(name="inbox", undecodable_is_terminal=False)
WORKFLOW = Rules(name="workflow", unknown=Category.PERMANENT, terminal_categories=_HOPELESS, reads_texts=True)


class Judgement(NamedTuple):
    """A judgement before it is put on record."""

    category: Category
    rule: str
    terminal: bool = False
    retry_after: float | None = None


def classify(error: BaseException, policy: RetryPolicy, rules: Rules = HANDLER) -> Failure:
    """Return *error* as a Failure: described, judged, fingerprinted; never raises, whatever *error* is."""
    error_type, message, frames = describe(error) if rules.is_grouped else (*say(error), ())
    return _failure(error_type, message, frames, _judge(error, policy, rules), rules, own_text(error))


def classify_text(
    error_type: str,
    message: str,
    policy: RetryPolicy = DEFAULT_RETRY_POLICY,
    rules: Rules = HANDLER,
    frames: Sequence[str] = (),
) -> Failure:
    """Return a Failure for an error that arrives as text: from another process, a queue of somebody else's."""
    name, said = clean(error_type, NAME_LIMIT), clean(message, MESSAGE_LIMIT)
    verdict = (
        _by_own_name(name)
        or _by_lists([(None, {name, name.rpartition(".")[2]})], policy)
        or _by_names([_key(name)], rules)
        or _by_text(f"{name}: {said}", rules)
        or _unknown(rules)
    )
    return _failure(name, said, tuple(frames), verdict, rules)


def _failure(
    error_type: str,
    message: str,
    frames: tuple[str, ...],
    verdict: Judgement,
    rules: Rules,
    own: str | None = None,
) -> Failure:
    marks = fingerprint(error_type, frames, message) if rules.is_grouped else _NO_FINGERPRINT
    return Failure(
        error_type=error_type,
        message=message,
        category=verdict.category,
        rule=clean(verdict.rule, _RULE_LIMIT),
        terminal=verdict.terminal,
        retry_after=None if verdict.terminal else verdict.retry_after,
        frames=frames,
        fingerprint=marks.id,
        template=marks.template,
        own_text=own,
    )


def _judge(error: BaseException, policy: RetryPolicy, rules: Rules) -> Judgement:
    listed = policy.terminal_errors or policy.retryable_errors
    if not listed and _is_bare(error) and (verdict := _by_class_alone(type(error), rules)):  # type: ignore[arg-type]  # a class of the usual kind can be hashed
        return verdict
    explicit = _by_own_word(error, rules) or _by_lists(_lineage(error), policy)
    if explicit:
        return _with_floor(explicit, error)
    if members := leaves(error):
        return _of_group([_judge(member, policy, rules) for member in members])
    verdict = (
        _by_type(error, rules)
        or _by_status(error, rules)
        or _by_errno(error, rules)
        or (_by_text(text_of(error)[:MESSAGE_LIMIT], rules) if rules.reads_texts else None)
        or _unknown(rules)
    )
    return _with_floor(verdict, error)


def _of_group(verdicts: list[Judgement]) -> Judgement:
    """
    Return one verdict for many errors: terminal only if all of them are.

    One that can heal makes the try worth repeating, and the longest wait that any of
    those asked for is kept.
    """
    hopeful = [verdict for verdict in verdicts if not verdict.terminal]
    chosen = (hopeful or verdicts)[0]
    floors = [verdict.retry_after for verdict in hopeful if verdict.retry_after is not None]
    rule = f"{len(hopeful)} of {len(verdicts)} errors of a group can heal: {chosen.rule}"
    return Judgement(chosen.category, rule, chosen.terminal, max(floors, default=None))


# ---------------------------------------------------------------------- what was said on purpose


def _by_own_word(error: BaseException, rules: Rules) -> Judgement | None:
    kind = type(error)
    if issubclass(kind, Reject):
        return Judgement(Category.PERMANENT, "the handler raised Reject", terminal=True)
    if issubclass(kind, RetryAfter):
        return Judgement(Category.TRANSIENT, "the handler raised RetryAfter", retry_after=_span(peek(error, "seconds")))
    if issubclass(kind, Undecodable):
        return Judgement(Category.VALIDATION, "the payload does not decode", terminal=rules.undecodable_is_terminal)
    return None


def _by_own_name(name: str) -> Judgement | None:
    if name in _REJECTS:
        return Judgement(Category.PERMANENT, "the handler raised Reject", terminal=True)
    return None


def _by_lists(lineage: Iterable[tuple[type | None, set[str]]], policy: RetryPolicy) -> Judgement | None:
    """Return what the policy's lists say of the nearest class that either of them names."""
    if not (policy.terminal_errors or policy.retryable_errors):
        return None
    for kind, names in lineage:
        if _is_listed(policy.terminal_errors, kind, names):
            return Judgement(Category.PERMANENT, f"the policy's terminal_errors name {max(names)}", terminal=True)
        if _is_listed(policy.retryable_errors, kind, names):
            return Judgement(Category.TRANSIENT, f"the policy's retryable_errors name {max(names)}")
    return None


def _is_listed(entries: ErrorNames, kind: type | None, names: set[str]) -> bool:
    if any(entry in names for entry in entries if isinstance(entry, str)):
        return True
    classes = [entry for entry in entries if isinstance(entry, type)]
    return any(entry is kind if kind else type_name(entry) in names for entry in classes)


# ---------------------------------------------------------------------- what it is


def _by_type(error: BaseException, rules: Rules) -> Judgement | None:
    for suspect in (error, *causes(error)):
        if verdict := _by_names(_keys(_family(suspect)), rules):
            return verdict
    return None


def _keys(family: list[tuple[str, str]]) -> list[str]:
    return [f"{module.partition('.')[0]}.{name}" for module, name in family]


def _by_names(keys: list[str], rules: Rules) -> Judgement | None:
    for key in keys:
        if key in known.CARRIERS:
            return None
        if found := _meaning(key, rules):
            return _verdict(found[0], f"{key} is known as {found[0]}", rules, found[1])
    return None


def _meaning(key: str, rules: Rules) -> tuple[Category, Meaning] | None:
    if key.endswith(".IntegrityError"):  # every database driver has its own
        return Category.PERMANENT, Meaning.INTEGRITY
    found = known.TYPES.get(key)
    if found and found[1] is Meaning.MISUSE and not rules.reads_texts:
        return None
    return found


def _key(name: str) -> str:
    """Return the key of a class that is known by a qualified, or a builtin's bare, name."""
    module, _, bare = name.rpartition(".")
    return f"{module.partition('.')[0] or 'builtins'}.{bare}"


def _verdict(category: Category, rule: str, rules: Rules, meaning: Meaning = Meaning.OTHER) -> Judgement:
    terminal = meaning in rules.terminal_meanings or category in rules.terminal_categories
    return Judgement(category, rule, terminal)


def _unknown(rules: Rules) -> Judgement:
    return _verdict(rules.unknown, f"no rule knows it, and unknown is {rules.unknown} for {rules.name}", rules)


def _lineage(error: BaseException) -> Iterator[tuple[type, set[str]]]:
    for kind, (module, name) in zip(_mro(error), _family(error), strict=True):
        yield kind, {name, f"{module}.{name}"}


def _family(error: BaseException) -> list[tuple[str, str]]:
    """Return module and name of the error's class and its parents."""
    return _names(_mro(error))


def _names(kinds: tuple[type, ...]) -> list[tuple[str, str]]:
    return [(_word(peek(kind, "__module__")), _word(peek(kind, "__qualname__"))) for kind in kinds]


def _mro(error: BaseException) -> tuple[type, ...]:
    kinds = peek(type(error), "__mro__")
    return kinds if type(kinds) is tuple else ()


def _word(thing: object) -> str:
    return thing if type(thing) is str else "?"


# ---------------------------------------------------------------------- most errors carry nothing

_LOOKED_AT = frozenset({"code", "errno", "headers", "response", "retry_after", "seconds", "status", "status_code"})
_HOOKS = frozenset({"__cause__", "__class__", "__dict__", "__getattr__", "__getattribute__", "exceptions"})


def _is_bare(error: BaseException) -> bool:
    """Whether *error* itself carries nothing that a rule looks at: no cause, no status."""
    if type(type(error)) is not type:  # a class of a class of somebody's own: nothing is what it seems
        return False
    own = peek(error, "__dict__")
    return type(own) is dict and _LOOKED_AT.isdisjoint(own) and peek(error, "__cause__") is None


@lru_cache(maxsize=512)  # a dependency that is down raises the same class a thousand times
def _by_class_alone(kind: type[BaseException], rules: Rules) -> Judgement | None:
    """Return the verdict on any bare error of exactly *kind*, or None if its class gives it something to look at."""
    if rules.reads_texts or issubclass(kind, (OSError, BaseExceptionGroup, Reject, RetryAfter, Undecodable)):
        return None
    for each in kind.__mro__:
        if type(each) is not type or (each.__module__ != "builtins" and (_LOOKED_AT | _HOOKS) & vars(each).keys()):
            return None
    return _by_names(_keys(_names(kind.__mro__)), rules) or _unknown(rules)


# ---------------------------------------------------------------------- what it carries


def _by_status(error: BaseException, rules: Rules) -> Judgement | None:
    for suspect in (error, *causes(error)):
        if name := _grpc_status(suspect):
            return _verdict(known.GRPC[name], f"it carries gRPC status {name}", rules)
        if code := _throttle_code(suspect):
            return _verdict(Category.TRANSIENT, f"it carries the code {code}", rules)
        if status := _http_status(suspect):
            return _verdict(known.http_category(status), f"it carries HTTP status {status}", rules)
    return None


def _grpc_status(error: BaseException) -> str | None:
    packages = {module.partition(".")[0] for module, _ in _family(error)}
    if "grpc" in packages:
        name = peek(_answer(peek(error, "code")), "name")
    elif "grpclib" in packages:
        name = peek(peek(error, "status"), "name")
    else:
        return None
    return name if type(name) is str and name in known.GRPC else None


def _answer(function: object) -> object:
    try:
        return function() if callable(function) else None
    except Exception:  # noqa: BLE001 - a stranger's method
        return None


def _http_status(error: BaseException) -> int | None:
    response = peek(error, "response")
    numbers = [peek(error, name) for name in ("status_code", "status", "code")]
    numbers += [peek(response, name) for name in ("status_code", "status")]
    numbers.append(_item(_item(response, "ResponseMetadata"), "HTTPStatusCode"))
    whole = (int.__int__(number) for number in numbers if issubclass(type(number), int))
    return next((number for number in whole if 400 <= number < 600), None)  # noqa: PLR2004 - HTTP's errors


def _throttle_code(error: BaseException) -> str | None:
    code = _item(_item(peek(error, "response"), "Error"), "Code")
    return code if type(code) is str and known.THROTTLED.search(clean(code, NAME_LIMIT)) else None


def _by_errno(error: BaseException, rules: Rules) -> Judgement | None:
    for suspect in (error, *causes(error)):
        number = peek(suspect, "errno") if issubclass(type(suspect), OSError) else None
        if type(number) is int and number in known.ERRNO:
            return _verdict(known.ERRNO[number], f"errno {number}", rules)
    return None


def _by_text(text: str, rules: Rules) -> Judgement | None:
    found = known.text_category(clean(text, MESSAGE_LIMIT))
    return _verdict(found[0], f"its text says {clean(found[1], NAME_LIMIT)!r}", rules) if found else None


# ---------------------------------------------------------------------- how long it asks for


def _with_floor(verdict: Judgement, error: BaseException) -> Judgement:
    if verdict.terminal or verdict.retry_after is not None:
        return verdict
    floors = (_floor(suspect) for suspect in (error, *causes(error)))
    return verdict._replace(retry_after=next((floor for floor in floors if floor is not None), None))


def _floor(error: BaseException) -> float | None:
    if (asked := _span(peek(error, "retry_after"))) is not None:
        return asked
    response = peek(error, "response")
    metadata = _item(response, "ResponseMetadata")
    for headers in (peek(response, "headers"), peek(error, "headers"), _item(metadata, "HTTPHeaders")):
        if (asked := _read_header(headers)) is not None:
            return asked
    return None


def _read_header(headers: object) -> float | None:
    """Return the seconds of a Retry-After; one that is a date counts from the same answer's Date."""
    value = _item(headers, "Retry-After")
    value = _item(headers, "retry-after") if value is None else value
    if (seconds := _span(value)) is not None:
        return seconds
    until, sent = _moment(value), _moment(_item(headers, "Date"))
    return max(0.0, (until - sent).total_seconds()) if until and sent else None


def _moment(value: object) -> datetime | None:
    try:
        return datetime.strptime(value, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _span(value: object) -> float | None:
    """Return *value* as seconds, or None."""
    try:
        seconds = float(value) if type(value) in (int, float, str) else nan  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return None
    return None if isnan(seconds) else max(0.0, min(seconds, LONGEST))


def _item(mapping: object, key: str) -> object:
    try:
        return mapping[key]  # type: ignore[index]
    except Exception:  # noqa: BLE001 - no mapping, no such key, or a stranger's __getitem__
        return None
