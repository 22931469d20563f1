"""The retry budget of a queue: off unless it is asked for, and then it delays and never fails."""

from __future__ import annotations

import pytest

from redrive import DEFAULT_RETRY_POLICY, Redrive, RetryPolicy
from redrive.core.budget import BudgetRules
from redrive.desk.look.explain import explain
from redrive.errors import PolicyError, SettingsError
from redrive.testing import drive

TIGHT = "ratio=0,floor=1,burst=1"


def failing(app: Redrive, policy: RetryPolicy = DEFAULT_RETRY_POLICY, queue: str = "default") -> Redrive:
    async def fail(order: dict) -> None:
        raise ConnectionError("down")

    app.add_handler("order", fail, policy=policy, queue=queue)
    return app


def waits(letter) -> list[float]:
    return [one.delay for one in letter.tries if one.why == "backing off"]


async def test_no_wait_is_longer_than_the_formula_however_many_letters_fail_together(app, driven, clock):
    failing(app)
    clock.draws = [0.999] * 5_000
    async with driven(app) as test:
        began = clock.monotonic()
        await app.enqueue_many([app.draft("order", {}) for _ in range(1_000)])
        await test.run_until_idle()
        dead = await test.letters("status:failed attempts:5")
        assert len(dead) == 1_000
        for letter in dead:
            assert len(waits(letter)) == 4
            assert all(wait <= bound for wait, bound in zip(waits(letter), (1, 2, 4, 8), strict=True))
        assert clock.monotonic() - began <= 15.1


async def test_a_queue_that_asked_for_no_budget_asks_the_store_for_none(app, driven):
    failing(app)
    async with driven(app) as test:
        asked = []
        test.store.spend = lambda *given, **named: asked.append(given)
        await app.enqueue("order", {})
        await test.run_until_idle()
        assert (len(await test.letters("status:failed")), asked) == (1, [])


@pytest.mark.parametrize("asked", [TIGHT, BudgetRules(ratio=0, floor=1, burst=1)], ids=["text", "rules"])
async def test_a_queue_that_asks_for_a_budget_waits_longer_and_fails_nothing_early(app, driven, asked):
    app.queue("default", retry_budget=asked)
    failing(app, RetryPolicy.constant(1, max_attempts=2))
    async with driven(app) as test:
        await app.enqueue_many([app.draft("order", {}) for _ in range(31)])
        await test.run_until_idle()
        dead = await test.letters("status:failed attempts:2")
        assert len(dead) == 31
        assert max(wait for letter in dead for wait in waits(letter)) > 10
        assert any("retry budget" in line for line in told(dead))


def told(letters) -> list[str]:
    return [line for letter in letters for line in explain(letter).story]


async def test_the_setting_gives_every_queue_a_budget_but_those_that_refuse_it(clock):
    app = Redrive("memory://", retry_budget=TIGHT)
    app.queue("free", retry_budget=False)
    failing(app, RetryPolicy.constant(1, max_attempts=2))

    async def fail(order: dict) -> None:
        raise ConnectionError("down")

    app.add_handler("free", fail, policy=RetryPolicy.constant(1, max_attempts=2), queue="free")
    async with drive(app, clock=clock) as test:
        await app.enqueue_many([app.draft(kind, {}) for kind in ("order", "free") for _ in range(30)])
        await test.run_until_idle()
        longest = {
            kind: max(w for x in await test.letters(f"kind:{kind}") for w in waits(x)) for kind in ("order", "free")
        }
    assert longest["order"] > 10
    assert longest["free"] == 1


@pytest.mark.parametrize("bad", ["much", "ratio=x", "floor=0", "ratio=nan", "rato=1", "ratio=1,ratio=2", 5])
def test_a_budget_that_makes_no_sense_is_refused(bad):
    with pytest.raises(PolicyError, match="budget"):
        Redrive("memory://").queue("default", retry_budget=bad)
    with pytest.raises(SettingsError, match=r"retry_budget is .*such as ratio=0\.2,floor=10,burst=100"):
        Redrive("memory://", retry_budget=bad)


@pytest.mark.parametrize(("bad", "said"), [(float("nan"), "nan"), (5, "5"), ([1], "a list")])
def test_a_budget_of_another_type_is_refused_with_what_may_be_given(bad, said):
    with pytest.raises(PolicyError) as refused:
        Redrive("memory://").queue("default", retry_budget=bad)
    may = "give True, False, or a text such as 'ratio=0.2,floor=10,burst=100'"
    assert str(refused.value) == f"retry_budget is {said}; {may}"


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("on", BudgetRules()),
        ("off", None),
        (" ratio=0.5, floor=2 ", BudgetRules(ratio=0.5, floor=2)),
        (BudgetRules(ratio=0.5, longest=7).text, BudgetRules(ratio=0.5, longest=7)),
    ],
)
def test_budgets_are_written_as_text(text, rules):
    assert BudgetRules.parse(text) == rules
    assert Redrive("memory://", retry_budget=text).settings.budget == rules
