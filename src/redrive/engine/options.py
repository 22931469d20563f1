"""
The options of handlers and breakers.

Owns the options, and the sentences about a wrong one. Everything is checked when it is declared, because a
mistake that shows only when a letter fails shows too late. Knows no letter and no store.
"""

from __future__ import annotations

import inspect
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from redrive.core.breaker import BreakerRules
from redrive.core.checks.did_you_mean import did_you_mean
from redrive.core.classify import Rules
from redrive.core.policy import RetryPolicy
from redrive.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from redrive.core.policy import ErrorNames

EngineName = Literal["async", "thread", "process"]


class Options(TypedDict, total=False):
    """The options of a handler."""

    queue: str
    policy: RetryPolicy | str
    timeout: float | None
    concurrency: int | None
    engine: EngineName | None
    breaker: str | None
    succeeded: Callable[[Any], object] | None
    terminal_errors: ErrorNames
    retryable_errors: ErrorNames
    rules: Rules


class BreakerOptions(TypedDict, total=False):
    """The options of a breaker; `BreakerRules` has the defaults."""

    failures: int
    ratio: float
    window: float  # seconds
    open_for: float  # seconds
    probes: int


_OF_THE_POLICY = {"attempts", "backoff", "max_attempts", "max_retries", "max_tries", "retries", "retry", "tries"}
_SUCH_AS = "policy=RetryPolicy.exponential(max_attempts=8)"


def problems_of(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a handler's *options*, each by itself."""
    known = Options.__annotations__
    for name in (name for name in options if name not in known):
        meant = f"; it belongs to the policy: {_SUCH_AS}" if name in _OF_THE_POLICY else did_you_mean(name, known)
        yield f"{name} is no option{meant}"
    for name, (fits, must) in _MUST.items():
        if name in options and not fits(options[name]):
            yield f"{name} is {_shown(options[name])} and must be {must}"
    for name in ("terminal_errors", "retryable_errors"):
        yield from _list_problems(name, options.get(name, ()))
    if isinstance(policy := options.get("policy"), str):
        yield from _policy_problems(policy)


def with_defaults(given: Options, defaults: Options) -> Options:
    """Return *given* with what only *defaults* say; errors that either calls terminal are terminal."""
    listed = given.get("terminal_errors", ())
    if not defaults or not isinstance(listed, (tuple, list, set, frozenset)):
        return {**defaults, **given}
    return {**defaults, **given, "terminal_errors": (*defaults.get("terminal_errors", ()), *listed)}


def breaker_problems(name: object, rules: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the names and types of a breaker's *rules*; `BreakerRules` knows what makes sense."""
    if not _is_name(name):
        yield f"the name of a breaker is {_shown(name)} and must be text"
    known = BreakerRules.__struct_fields__
    for rule, value in rules.items():
        if rule not in known:
            yield f"{rule} of breaker {name!r} is no option{did_you_mean(rule, known)}"
        elif not (_is_whole(value) if rule in {"failures", "probes"} else _is_number(value)):
            must = "a whole number" if rule in {"failures", "probes"} else "a number"
            yield f"{rule} of breaker {name!r} is {_shown(value)} and must be {must}"


# ---------------------------------------------------------------------- what fits


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float) and isfinite(value))


def _is_count(value: Any) -> bool:
    return _is_whole(value) and value >= 1


def _is_amount(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_predicate(value: object) -> bool:
    # An async function returns a coroutine, and a coroutine is always true.
    return callable(value) and not inspect.iscoroutinefunction(value)


def _or_none(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or fits(value)


_MUST: dict[str, tuple[Callable[[object], bool], str]] = {
    "queue": (_is_name, "the name of a queue, as text"),
    "policy": (
        lambda value: isinstance(value, (RetryPolicy, str)),
        "a RetryPolicy or the text of one, such as 'constant:delay=5'; leave it out for the default",
    ),
    "timeout": (_or_none(_is_amount), "a number of seconds above 0, or None for no limit"),
    "concurrency": (_or_none(_is_count), "a whole number from 1 up, or None"),
    "engine": (_or_none(lambda value: value in get_args(EngineName)), "async, thread or process"),
    "breaker": (_or_none(_is_name), "the name of a breaker, as text, or None"),
    "succeeded": (_or_none(_is_predicate), "a function that is not async and takes what the handler returned, or None"),
    "rules": (lambda value: isinstance(value, Rules), "a Rules"),
}


def _list_problems(name: str, errors: object) -> Iterator[str]:
    if not isinstance(errors, (tuple, list, set, frozenset)):
        yield f"{name} is {_shown(errors)} and must be a tuple of exception classes or their names: (ValueError,)"
        return
    for entry in errors:
        if not (isinstance(entry, str) or (isinstance(entry, type) and issubclass(entry, BaseException))):
            yield f"{name} holds {_shown(entry)}, which is neither an exception class nor the name of one"


def _policy_problems(text: str) -> Iterator[str]:
    try:
        RetryPolicy.parse(text)
    except PolicyError as error:
        yield str(error)


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) < 80 else f"a {type(value).__name__}"  # noqa: PLR2004 - what is longer hides the sentence
