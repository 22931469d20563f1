"""What a source gives to its handlers: only what they do not say themselves, whenever they are registered."""

from __future__ import annotations

import pytest

from redrive import Redrive, RetryPolicy
from redrive.core.classify import HANDLER, INBOX
from redrive.errors import HandlerError

OURS = RetryPolicy.constant(7)
THEIRS = RetryPolicy.constant(9)


async def take(payload: bytes) -> None:
    """Take anything."""


@pytest.mark.parametrize("first", [True, False])
def test_a_handler_keeps_what_it_was_given_and_gets_the_rest(first):
    app = Redrive("memory://")

    def register():
        app.add_handler("stripe", take)
        app.add_handler("stripe.paid", take, policy=THEIRS, queue="billing", terminal_errors=(KeyError,))
        app.add_handler("stripes", take)

    if first:
        register()
    app.handler_defaults("stripe", queue="inbox", policy=OURS, rules=INBOX, terminal_errors=(ValueError,))
    if not first:
        register()
    own, paid, other = (app.handlers[kind] for kind in ("stripe", "stripe.paid", "stripes"))
    assert (own.queue, own.policy.first, own.rules, own.policy.terminal_errors) == ("inbox", 7, INBOX, (ValueError,))
    assert (paid.queue, paid.policy.first, paid.rules) == ("billing", 9, INBOX)
    assert paid.policy.terminal_errors == (ValueError, KeyError)
    assert (other.queue, other.rules) == ("default", HANDLER)


def test_what_is_wrong_with_a_handler_is_still_said():
    app = Redrive("memory://")
    app.handler_defaults("stripe", queue="inbox")
    with pytest.raises(HandlerError, match="terminal_errors is 5"):
        app.add_handler("stripe", take, terminal_errors=5)
    with pytest.raises(HandlerError, match="a kind must be text"):
        app.add_handler(None, take)


async def test_what_waits_for_the_store_is_awaited_each_time_it_was_opened():
    app, seen = Redrive("memory://"), []

    async def prepare() -> None:
        seen.append(await app.store.queues())

    app.on_open(prepare)
    for _ in range(2):
        await app.open()
    assert len(seen) == 1
    await app.close()
    await app.open()
    assert len(seen) == 2
    await app.close()
