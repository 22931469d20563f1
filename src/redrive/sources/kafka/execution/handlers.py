"""
The handler of a worker.

Owns how a worker becomes a `Handler` of `redrive.engine`: for tasks and threads, which pass on what the engine
was given, and for child processes, which get a letter. A worker that is a `Handler` already brings its own policy,
timeout and rules; for any other worker they come from the configuration. Knows no engine.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redrive.core.classify import KAFKA
from redrive.engine.handler import Handler, build_handler
from redrive.engine.import_names import name_of
from redrive.errors import HandlerError
from redrive.sources.kafka.execution.worker_factory import WorkerFactory, called, made, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.classify import Rules
    from redrive.core.policy import RetryPolicy
    from redrive.sources.kafka.config import ExecutionConfig

    Function = Callable[[Any], Any]
    Worker = Function | WorkerFactory | Handler[Any]

_KIND = "kafka"


def record_handler(
    worker: Function | WorkerFactory,
    *,
    policy: RetryPolicy,
    rules: Rules = KAFKA,
    timeout: float | None = None,
    succeeded: Callable[[Any], object] | None = None,
) -> Handler[Any]:
    """
    Return *worker* as a handler of records with its own *policy*, *rules* and *timeout* in seconds.

    A consumer takes it in place of a worker; these values then replace those of its ExecutionConfig. *succeeded*
    tells whether a returned value is a success.
    """
    function: Any = worker
    return Handler(
        kind=_KIND, function=function, call=function, name=called(worker), wants_letter=True, engine="thread",
        queue=_KIND, policy=policy, timeout=timeout, concurrency=None, breaker=None, succeeded=succeeded, rules=rules,
    )  # fmt: skip


def function_of(worker: Worker) -> Function | WorkerFactory:
    """Return what *worker* runs: a function, or the factory of one."""
    return worker.function if isinstance(worker, Handler) else worker


def plain_handler(
    worker: Worker, config: ExecutionConfig, call: Callable[[Function], Any] | None = None
) -> Handler[Any]:
    """
    Return a handler for tasks and threads.

    Its function gets what the engine was given; *call*, if given, wraps the function. Raise HandlerError if the
    function does not take one argument.
    """
    function = made(function_of(worker))
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError) as error:
        raise HandlerError(f"cannot use {function!r} as a worker: {error}; it is called with one record") from None
    return replace(
        _configured(worker, config),
        function=function,
        call=function if call is None else call(function),
        name=name_of(function),
        engine="async" if is_async(function) else "thread",
    )


def child_handler(
    worker: Worker, config: ExecutionConfig, wrap: Callable[[Function | WorkerFactory], Callable[..., Any]]
) -> Handler[Any]:
    """Return a handler for child processes; *wrap* makes a function of a letter that a child finds by its name."""
    own = _configured(worker, config)
    return build_handler(
        _KIND, wrap(function_of(worker)), engine="process", policy=own.policy, timeout=own.timeout, rules=own.rules,
        succeeded=own.succeeded,
    )  # fmt: skip


def refuse_unreachable(worker: Worker) -> None:
    """Raise HandlerError if worker processes cannot import *worker*."""
    if why := unreachable(function_of(worker)):
        raise HandlerError(
            f"cannot run {called(function_of(worker))!r} in worker processes: it is {why}; define it at the top level "
            "of a module, let a WorkerFactory make it there, or use mode='async'"
        )


def is_async(function: Function) -> bool:
    """Whether calling *function* returns an awaitable."""
    return inspect.iscoroutinefunction(function) or (
        callable(function) and inspect.iscoroutinefunction(type(function).__call__)
    )


def _configured(worker: Worker, config: ExecutionConfig) -> Handler[Any]:
    if isinstance(worker, Handler):
        return worker
    return record_handler(worker, policy=config.policy, rules=config.rules, timeout=config.timeout)
