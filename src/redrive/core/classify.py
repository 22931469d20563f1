"""
What kind of failure it was, and whether it can heal.

Owns the order of the rules: what the handler raised on purpose, the policy's lists, the error's type and its causes,
a status that it carries, errno, its text, the default. The answer names the rule that matched. Knows no delay and no
state: `decide` does.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from redrive.core.failures import carried, known
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
from redrive.core.policy import DEFAULT_RETRY_POLICY
from redrive.errors import Reject, RetryAfter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from redrive.core.policy import ErrorNames, RetryPolicy

_RULE_LIMIT = 500  # characters; rules quote names of classes and codes, which other people choose
_NO_FINGERPRINT = Fingerprint("", "", "")
_REJECTS = {"Reject", "TerminalHandlerError", "redrive.errors.Reject", "redrive.Reject", "redrive.TerminalHandlerError"}
_HOPELESS = frozenset({Category.PERMISSION, Category.VALIDATION, Category.PERMANENT})


class Undecodable(Exception):
    """The payload does not decode to what the handler takes; raised `from` the decoder's own error."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How a source judges errors: which are terminal, and what an unknown one is."""

    name: str
    unknown: Category = Category.TRANSIENT
    terminal_meanings: frozenset[Meaning] = frozenset()
    terminal_categories: frozenset[Category] = frozenset()
    undecodable_is_terminal: bool = True
    reads_texts: bool = False  # text decides for exceptions, too, and a plain ValueError is a validation failure
    is_grouped: bool = True  # frames and fingerprint are kept; a source without groups should not pay for them
    is_traced: bool = True  # the traceback is kept


HANDLER = Rules(name="handler", terminal_meanings=frozenset({Meaning.INTEGRITY, Meaning.INVALID}))  # on every store
RELAY = Rules(name="relay", terminal_categories=_HOPELESS)
KAFKA = Rules(name="kafka", undecodable_is_terminal=False, is_grouped=False, is_traced=False)
INBOX = Rules(name="inbox", undecodable_is_terminal=False)
WORKFLOW = Rules(name="workflow", unknown=Category.PERMANENT, terminal_categories=_HOPELESS, reads_texts=True)


class Judgement(NamedTuple):
    """What the rules say about one error."""

    category: Category
    rule: str
    terminal: bool = False
    retry_after: float | None = None


def classify(error: BaseException, policy: RetryPolicy, rules: Rules = HANDLER) -> Failure:
    """Return *error* as a Failure: described, judged, fingerprinted; never raises."""
    error_type, message, frames = describe(error) if rules.is_grouped else (*say(error), ())
    return _failure(error_type, message, frames, _judge(error, policy, rules), rules, own_text(error))


def classify_text(
    error_type: str,
    message: str,
    policy: RetryPolicy = DEFAULT_RETRY_POLICY,
    rules: Rules = HANDLER,
    frames: Sequence[str] = (),
) -> Failure:
    """Return a Failure for an error that arrives as text: from another process, or another system's queue."""
    name, text = clean(error_type, NAME_LIMIT), clean(message, MESSAGE_LIMIT)
    judgement = (
        _by_own_name(name)
        or _by_lists([(None, {name, name.rpartition(".")[2]})], policy)
        or _by_names([_key(name)], rules)
        or _by_text(f"{name}: {text}", rules)
        or _unknown(rules)
    )
    return _failure(name, text, tuple(frames), judgement, rules)


def _failure(
    error_type: str,
    message: str,
    frames: tuple[str, ...],
    judgement: Judgement,
    rules: Rules,
    own: str | None = None,
) -> Failure:
    marks = fingerprint(error_type, frames, message) if rules.is_grouped else _NO_FINGERPRINT
    return Failure(
        error_type=error_type,
        message=message,
        category=judgement.category,
        rule=clean(judgement.rule, _RULE_LIMIT),
        terminal=judgement.terminal,
        retry_after=None if judgement.terminal else judgement.retry_after,
        frames=frames,
        fingerprint=marks.id,
        template=marks.template,
        own_text=own,
    )


def _judge(error: BaseException, policy: RetryPolicy, rules: Rules) -> Judgement:
    listed = policy.terminal_errors or policy.retryable_errors
    if not listed and _is_bare(error) and (judgement := _by_class_alone(type(error), rules)):  # type: ignore[arg-type]  # a class of the usual kind can be hashed
        return judgement
    explicit = _by_own_word(error, rules) or _by_lists(_lineage(error), policy)
    if explicit:
        return _with_floor(explicit, error)
    if members := leaves(error):
        return _of_group([_judge(member, policy, rules) for member in members])
    judgement = (
        _by_type(error, rules)
        or _by_status(error, rules)
        or _by_errno(error, rules)
        or (_by_text(text_of(error)[:MESSAGE_LIMIT], rules) if rules.reads_texts else None)
        or _unknown(rules)
    )
    return _with_floor(judgement, error)


def _of_group(judgements: list[Judgement]) -> Judgement:
    """
    Return one judgement for many errors: terminal only if all of them are.

    One error that can heal is enough for a retry. Of the waits that such errors ask for, the longest counts.
    """
    hopeful = [judgement for judgement in judgements if not judgement.terminal]
    chosen = (hopeful or judgements)[0]
    floors = [judgement.retry_after for judgement in hopeful if judgement.retry_after is not None]
    rule = f"{len(hopeful)} of {len(judgements)} errors of a group can heal: {chosen.rule}"
    return Judgement(chosen.category, rule, chosen.terminal, max(floors, default=None))


# ---------------------------------------------------------------------- what was raised on purpose


def _by_own_word(error: BaseException, rules: Rules) -> Judgement | None:
    kind = type(error)
    if issubclass(kind, Reject):
        return Judgement(Category.PERMANENT, "the handler raised Reject", terminal=True)
    if issubclass(kind, RetryAfter):
        return Judgement(
            Category.TRANSIENT, "the handler raised RetryAfter", retry_after=carried.span(peek(error, "seconds"))
        )
    if issubclass(kind, Undecodable):
        return Judgement(Category.VALIDATION, "the payload does not decode", terminal=rules.undecodable_is_terminal)
    return None


def _by_own_name(name: str) -> Judgement | None:
    if name in _REJECTS:
        return Judgement(Category.PERMANENT, "the handler raised Reject", terminal=True)
    return None


def _by_lists(lineage: Iterable[tuple[type | None, set[str]]], policy: RetryPolicy) -> Judgement | None:
    """Return the judgement of the policy's lists; the nearest class that either of them names counts."""
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
        if judgement := _by_names(_keys(_family(suspect)), rules):
            return judgement
    return None


def _keys(family: list[tuple[str, str]]) -> list[str]:
    return [f"{module.partition('.')[0]}.{name}" for module, name in family]


def _by_names(keys: list[str], rules: Rules) -> Judgement | None:
    for key in keys:
        if key in known.CARRIERS:
            return None
        if found := _meaning(key, rules):
            return _judged(found[0], f"{key} is known as {found[0]}", rules, found[1])
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


def _judged(category: Category, rule: str, rules: Rules, meaning: Meaning = Meaning.OTHER) -> Judgement:
    terminal = meaning in rules.terminal_meanings or category in rules.terminal_categories
    return Judgement(category, rule, terminal)


def _unknown(rules: Rules) -> Judgement:
    return _judged(rules.unknown, f"no rule knows it, and unknown is {rules.unknown} for {rules.name}", rules)


def _lineage(error: BaseException) -> Iterator[tuple[type, set[str]]]:
    for kind, (module, name) in zip(_mro(error), _family(error), strict=True):
        yield kind, {name, f"{module}.{name}"}


def _family(error: BaseException) -> list[tuple[str, str]]:
    """Return module and name of the error's class and its parents."""
    return _names(_mro(error))


def _packages(error: BaseException) -> set[str]:
    return {module.partition(".")[0] for module, _ in _family(error)}


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


def says_all(error: BaseException, rules: Rules) -> bool:
    """Whether the class of *error*, its text and where it came from are all that a failure keeps of it."""
    return (
        _is_bare(error)
        and (peek(error, "__context__") is None or peek(error, "__suppress_context__") is True)
        and _by_class_alone(type(error), rules) is not None  # type: ignore[arg-type]  # see `_judge`
    )


def _is_bare(error: BaseException) -> bool:
    """Whether *error* itself carries nothing that a rule looks at: no cause, no status."""
    if type(type(error)) is not type:  # a class with a metaclass of its own can hide anything
        return False
    own = peek(error, "__dict__")
    return type(own) is dict and _LOOKED_AT.isdisjoint(own) and peek(error, "__cause__") is None


@lru_cache(maxsize=512)  # a dependency that is down raises the same class a thousand times
def _by_class_alone(kind: type[BaseException], rules: Rules) -> Judgement | None:
    """Return the judgement on any bare error of exactly *kind*, or None if its class gives it something to look at."""
    if rules.reads_texts or issubclass(kind, (OSError, BaseExceptionGroup, Reject, RetryAfter, Undecodable)):
        return None
    for each in kind.__mro__:
        if type(each) is not type or (each.__module__ != "builtins" and (_LOOKED_AT | _HOOKS) & vars(each).keys()):
            return None
    return _by_names(_keys(_names(kind.__mro__)), rules) or _unknown(rules)


# ---------------------------------------------------------------------- what it carries


def _by_status(error: BaseException, rules: Rules) -> Judgement | None:
    for suspect in (error, *causes(error)):
        if name := carried.grpc_status(suspect, _packages(suspect)):
            return _judged(known.GRPC[name], f"it carries gRPC status {name}", rules)
        if code := carried.throttle_code(suspect):
            return _judged(Category.TRANSIENT, f"it carries the code {code}", rules)
        if status := carried.http_status(suspect):
            return _judged(known.http_category(status), f"it carries HTTP status {status}", rules)
    return None


def _by_errno(error: BaseException, rules: Rules) -> Judgement | None:
    for suspect in (error, *causes(error)):
        number = peek(suspect, "errno") if issubclass(type(suspect), OSError) else None
        if type(number) is int and number in known.ERRNO:
            return _judged(known.ERRNO[number], f"errno {number}", rules)
    return None


def _by_text(text: str, rules: Rules) -> Judgement | None:
    found = known.text_category(clean(text, MESSAGE_LIMIT))
    return _judged(found[0], f"its text says {clean(found[1], NAME_LIMIT)!r}", rules) if found else None


# ---------------------------------------------------------------------- how long it asks for


def _with_floor(judgement: Judgement, error: BaseException) -> Judgement:
    if judgement.terminal or judgement.retry_after is not None:
        return judgement
    floors = (carried.retry_after(suspect) for suspect in (error, *causes(error)))
    return judgement._replace(retry_after=next((floor for floor in floors if floor is not None), None))
