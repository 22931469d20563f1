"""
What an application declares.

Owns its handlers, queues, breakers, backoff functions, retry budgets and subscriptions, each checked when it is
declared. Knows no store: the application makes them known once a store is open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from redrive.core.breaker import BreakerRules
from redrive.core.budget import budget_of
from redrive.core.classify import HANDLER, RELAY
from redrive.core.letter import Letter  # noqa: TC001 - the annotations of handlers are read at run time
from redrive.core.policy.backoffs import Backoffs
from redrive.engine.handler import build_handler
from redrive.engine.options import breaker_problems, with_defaults
from redrive.engine.queue_limits import queue_spec
from redrive.errors import HandlerError, SettingsError, SourceError
from redrive.stores.contract import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from redrive.core.budget import BudgetRules
    from redrive.core.sending import Publisher
    from redrive.engine.handler import Handler
    from redrive.engine.options import BreakerOptions, Options
    from redrive.engine.queue_limits import QueueLimits
    from redrive.stores.contract import QueueSpec

F = TypeVar("F", bound="Callable[..., Any]")


class Declared:
    """Handlers by kind, queues by name, and what belongs to them."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.queues: dict[str, QueueSpec] = {}
        self.concurrency: dict[str, int] = {}
        self.breakers: dict[str, BreakerRules] = {}
        self.backoffs = Backoffs()
        self.budgets: dict[str, BudgetRules | None] = {}
        self.subscriptions: list[tuple[str, str]] = []  # event and handler, both kinds
        self._given: dict[str, Options] = {}  # what each handler was registered with
        self._defaults: dict[str, Options] = {}  # by the first part of a kind

    def add_handler(self, kind: str, function: Callable[..., Any], options: Options) -> Handler:
        """Keep *function* as the handler of *kind*; raise HandlerError if that is impossible."""
        if kind in self.handlers:
            raise HandlerError(
                f"cannot register a second handler for {kind!r}: {self.handlers[kind].name!r} has it; "
                "give one of them another kind"
            )
        defaults = self._defaults.get(str(kind).partition(".")[0], {})
        handler = build_handler(kind, function, **with_defaults(options, defaults))
        self.handlers[kind], self._given[kind] = handler, options
        if handler.breaker is not None:
            self.breakers.setdefault(handler.breaker, BreakerRules())
        return handler

    def registering(self, kind: str, options: Options) -> Callable[[F], F]:
        """Return a decorator that keeps a function as the handler of *kind*, and leaves the function as it is."""
        if not isinstance(kind, str):  # `@app.handler` alone would put our decorator into the function's place
            raise HandlerError(f"cannot register a handler of {kind!r}: name its kind, @app.handler('order.created')")

        def register(function: F) -> F:
            self.add_handler(kind, function, options)
            return function

        return register

    def add_publisher(self, kind: str, publisher: Publisher, options: Options) -> Handler:
        """Keep *publisher* as the handler of *kind*, judged by the rules of a relay unless *options* say otherwise."""

        async def publish(letter: Letter) -> None:
            await publisher.publish(letter)

        options.setdefault("rules", RELAY)
        return self.add_handler(kind, publish, options)

    def send_home(self, scheme: str, sender: Publisher, options: Options) -> Handler:
        """Keep *sender* as the handler of *scheme* and of all kinds below it, in a queue of that name."""
        options.setdefault("queue", scheme)
        options.setdefault("rules", HANDLER)
        self.add_publisher(f"{scheme}.*", sender, options)
        return self.add_publisher(scheme, sender, options)

    def handler_defaults(self, name: str, options: Options) -> None:
        """Give *options* to the handlers of *name* and of kinds below it, also to those registered already."""
        self._defaults[name] = options
        for kind in [kind for kind in self.handlers if kind.partition(".")[0] == name]:
            function, given = self.handlers.pop(kind).function, self._given[kind]
            self.add_handler(kind, function, given)

    def handlers_of(self, queues: Sequence[str]) -> dict[str, Handler]:
        """Return the handlers of these queues, or all if none is named; raise HandlerError if there are none."""
        chosen = {kind: handler for kind, handler in self.handlers.items() if not queues or handler.queue in queues}
        if not chosen:
            where = f" for the queues {', '.join(queues)}" if queues else ""
            raise HandlerError(f"cannot run a worker: there are no handlers{where}; register one with @app.handler")
        if unknown := self.unknown_backoffs(chosen.values()):
            raise HandlerError(f"cannot run a worker: {unknown[0]}")
        return chosen

    def unknown_backoffs(self, handlers: Iterable[Handler] | None = None) -> list[str]:
        """Return a sentence for each of *handlers*, or of all, whose policy names an unknown backoff function."""
        known = set(self.backoffs)
        return [
            f"the policy of the handler of {handler.kind!r} names the backoff function {name!r}, which is not "
            f"registered; call app.backoff({name!r}, function)"
            for handler in (self.handlers.values() if handlers is None else handlers)
            if (name := handler.policy.name) and name not in known
        ]

    def queue(
        self,
        name: str,
        limits: QueueLimits,
        *,
        ordered: bool,
        retry_budget: BudgetRules | str | bool | None,
        slips: Iterable[str],
    ) -> None:
        """Keep the settings of the queue *name*; raise SettingsError with every problem."""
        self.queues[name] = queue_spec(name, limits, ordered=ordered, slips=slips)
        if retry_budget is not None:
            self.budgets[name] = budget_of(retry_budget)
        if limits["concurrency"] is not None:
            self.concurrency[name] = limits["concurrency"]

    def queue_of(self, kind: str) -> str:
        """Return the queue of the handler of *kind*."""
        handler = self.handlers.get(kind) if isinstance(kind, str) else None  # the draft refuses what is no text
        return "default" if handler is None else handler.queue

    def breaker(self, name: str, rules: BreakerOptions) -> None:
        """Keep the rules of the breaker *name*; raise SettingsError with every problem."""
        if problems := list(breaker_problems(name, rules)):
            raise SettingsError(problems)
        self.breakers[name] = BreakerRules(**rules)

    def wanted_subscriptions(self) -> Iterator[Subscription]:
        """Yield the subscriptions; raise SourceError for an event whose letters a handler takes itself."""
        for event, handler in self.subscriptions:
            if event in self.handlers:
                raise SourceError(
                    f"cannot subscribe {handler!r} to {event!r}: that kind has a handler of its own, which takes the "
                    f"events before they are broadcast; give {self.handlers[event].name!r} another kind"
                )
            yield Subscription(event=event, handler=handler, queue=self.queue_of(handler))
