"""
What runs a letter.

Owns the record of a handler: the function, how and where it runs, what its failures mean. Building a handler
reports everything that is wrong with it. Knows no store and no queue.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from redrive.core import classify
from redrive.core.policy import DEFAULT_RETRY_POLICY, RetryPolicy
from redrive.engine.arguments import bind
from redrive.engine.import_names import name_of, unfindable
from redrive.engine.options import problems_of
from redrive.errors import HandlerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import TypeVar as TypeVarWithDefault

    from redrive.core.classify import Rules
    from redrive.core.decide import PolicyChoice
    from redrive.core.letter import Letter
    from redrive.engine.options import EngineName, Options

    T = TypeVarWithDefault("T", default=Letter)  # a bare `Handler` handles letters
else:
    T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Handler(Generic[T]):
    """A function that handles the letters of one kind, or what a source runs, and how. See `build_handler`."""

    kind: str
    function: Callable[..., Any]
    call: Callable[[T], Any]  # takes the letter, decodes what the function wants of it, and calls it
    name: str  # "module:function"
    wants_letter: bool
    engine: EngineName
    queue: str
    policy: RetryPolicy
    timeout: float | None  # seconds, from when it begins
    concurrency: int | None  # letters at once in this process
    breaker: str | None  # the dependency that it needs
    succeeded: Callable[[Any], object] | None  # whether what it returned is a success
    rules: Rules
    choose: PolicyChoice | None = None  # the policy by failure; a letter's own policy still comes first


def build_handler(kind: str, function: Callable[..., Any], **options: Unpack[Options]) -> Handler:
    """
    Return the handler of *kind*; raise HandlerError with every problem at once.

    A sync function runs in a thread and an async one on the event loop, unless *engine* is given.
    *terminal_errors* and *retryable_errors* are added to the policy's own.
    """
    engine = options.get("engine") or ("async" if _is_async(function) else "thread")
    problems = [*problems_of(options), *_problems(function, engine, options)]
    if not (isinstance(kind, str) and kind):
        problems.append("a kind must be text; write @app.handler('order.created') above the function")
    try:
        call, wants_letter = bind(function)
    except HandlerError as error:
        problems.append(str(error))
    if problems:
        raise HandlerError(f"cannot use {name_of(function)!r} as the handler of {kind!r}: " + "; ".join(problems))
    return Handler(
        kind=kind,
        function=function,
        call=call,
        name=name_of(function),
        wants_letter=wants_letter,
        engine=engine,
        queue=options.get("queue", "default"),
        policy=_policy(options),
        timeout=options.get("timeout"),
        concurrency=options.get("concurrency"),
        breaker=options.get("breaker"),
        succeeded=options.get("succeeded"),
        rules=options.get("rules", classify.HANDLER),
    )


def _is_async(function: Callable[..., Any]) -> bool:
    # An object is as async as its __call__; inspect itself looks through functools.partial.
    return inspect.iscoroutinefunction(function) or (
        callable(function) and inspect.iscoroutinefunction(type(function).__call__)
    )


def _policy(options: Options) -> RetryPolicy:
    given = options.get("policy", DEFAULT_RETRY_POLICY)
    policy = RetryPolicy.parse(given) if isinstance(given, str) else given
    terminal, retryable = options.get("terminal_errors", ()), options.get("retryable_errors", ())
    if not (terminal or retryable):
        return policy
    return replace(
        policy,
        terminal_errors=(*policy.terminal_errors, *terminal),
        retryable_errors=(*policy.retryable_errors, *retryable),
    )


def _problems(function: Callable[..., Any], engine: str, options: Options) -> Iterator[str]:
    if engine == "async" and not _is_async(function):
        yield "it is not an async function, so it would block the event loop; leave out engine to run it in a thread"
    if engine == "process":
        yield from _process_problems(function, options.get("succeeded"))


def _process_problems(function: Callable[..., Any], succeeded: Callable[[Any], object] | None) -> Iterator[str]:
    for each in (function, succeeded):
        if each is not None and (why := unfindable(each)):
            yield (
                f"engine='process' needs functions that another process can import, and {name_of(each)!r} is {why}; "
                "define it at the top level of a module, or use engine='thread'"
            )
