"""
The same calls on every store, in any order that chance can think of: whatever can be seen must be the same.

`REDRIVE_DIFFERENCE_EXAMPLES=500 pytest tests/stores/contract/desk/test_differences.py` looks longer;
REDRIVE_DIFFERENCE_SHRINK=1 makes what it finds smaller, which takes minutes.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace
from tests.stores.conftest import open_store
from tests.stores.samples import failure, find_all, letter_id

from redrive.core.letter import Category, Draft, Priority, Status
from redrive.core.moves import VERBS, Move
from redrive.core.plan import Plan
from redrive.core.query import parse
from redrive.errors import RedriveError
from redrive.stores.clock import ManualClock
from redrive.stores.contract import QueueSpec, Retention, Want, books

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redrive.stores.contract import Claim, Store

STORES = ("memory", "sqlite", "postgres", "postgres16")
KINDS = ("a", "b.c")
QUEUES = ("work", "lane")
ANY = st.integers(0, 10_000)  # which one: taken modulo how many there are
LONG = failure("boom 17: " + "x" * 700, category=Category.NETWORK, release="1.2", place="app:f:3", traceback="line 3\n")
FAILURES = st.sampled_from([failure(), LONG, failure("Über\0", fingerprint="f2", error_type="OSError", template="")])
TERMS = st.sampled_from(
    [
        *(
            "status:failed",
            "status:pending,archived",
            "-status:delivered",
            "kind:a",
            "kind:b.*",
            "queue:lane",
            "key:k1",
        ),
        *("payload.user:1", "payload.user:>0", "-payload.user:2", "error:~BOOM", "-error:~über", "error:boom*"),
        *("error_type:OSError", "category:network", "group:f", "group:f2", "attempts:>1", "losses:1", "cycles:>=1"),
        *("age:>5s", "failed:<20s", "due:>1s", "why:replayed", "why:~by", "tenant:t*", "-tenant:t1", "priority:low"),
        *("key:k1", "plan:*", "-plan:p0", "release:1.2", "policy:never", "idempotency_key:i1"),
    ]
)
QUERIES = st.lists(TERMS, min_size=1, max_size=3, unique=True).map(" ".join)
DRAFTS = st.fixed_dictionaries(
    {
        "queue": st.sampled_from(QUEUES),
        "kind": st.sampled_from(KINDS),
        "key": st.sampled_from(["k1", "k1", "k2", None]),
        "idempotency_key": st.sampled_from([None, None, None, "i1"]),
        "priority": st.sampled_from(Priority),
        "delay": st.sampled_from([0, 0, 0, 5]),
        "tenant": st.sampled_from([None, "t1"]),
        "policy": st.sampled_from([None, "never"]),
        "failure": st.none() | FAILURES,
        "user": st.integers(0, 2),
        "after": st.lists(ANY, max_size=1),
    }
)
MOVES = st.one_of(
    st.just(Move(Status.DELIVERED, "succeeded")),
    st.builds(lambda what: Move(Status.PENDING, "backing off", 2.5, failure=what, policy="p1", draw=0.5), FAILURES),
    st.builds(lambda what: Move(Status.FAILED, "exhausted", failure=what, policy="p2", age=3.5), FAILURES),
    st.just(Move(Status.PENDING, "worker lost", counts=False, loss=True, policy="p1")),
    st.just(Move(Status.PENDING, "interrupted", counts=False)),
)
VERB = st.sampled_from([*VERBS, "replay"])
STEPS = st.one_of(
    st.tuples(st.just("put"), st.lists(DRAFTS, min_size=1, max_size=4)),
    st.tuples(st.just("claim"), st.sampled_from(QUEUES), st.integers(1, 6)),
    st.tuples(st.just("settle"), st.lists(ANY, min_size=1, max_size=4), MOVES),
    st.tuples(st.just("act"), VERB, st.lists(ANY, min_size=1, max_size=3)),
    st.tuples(st.just("plan"), VERB, QUERIES, st.integers(1, 4), st.none() | st.integers(1, 3)),
    st.tuples(st.just("edit"), ANY, st.integers(0, 1)),
    st.tuples(st.just("pass_time"), st.sampled_from([0.5, 6.0, 61.0])),
    st.tuples(st.just("look"), QUERIES),
    st.tuples(st.just("retain")),
)


class Stores:
    """The same letters in every store."""

    def __init__(self, stores: dict[str, Store], clock: ManualClock) -> None:
        self.stores, self.clock = stores, clock
        self.names: list[str] = []  # of all letters ever put
        self.claims: list[dict[str, Claim]] = []  # by store
        self.plans = 0

    async def same(self, call: Callable[[Store], Awaitable[Any]]) -> Any:
        """Let every store answer, and return what all of them say, a refusal included."""
        answers = {name: await _answer(call(store)) for name, store in self.stores.items()}
        for name, answer in answers.items():
            assert answer == answers["memory"], f"{name} differs: {_differences(answer, answers['memory'])}"
        return answers["memory"]

    async def put(self, drafts: list[dict[str, Any]]) -> None:
        made = []
        for fields in drafts:
            name = letter_id(f"n{len(self.names)}")
            after = tuple(self.names[which % len(self.names)] for which in fields["after"] if self.names)
            user = b'{"user": %d}' % fields["user"]
            told = {field: value for field, value in fields.items() if field != "user"} | {"after": after}
            made.append(Draft(id=name, payload=user, **told))
            self.names.append(name)
        await self.same(lambda store: store.put(made))

    async def claim(self, queue: str, limit: int) -> None:
        found: dict[str, dict[str, Claim]] = {}

        async def claimed(name: str, store: Store) -> list[Any]:
            claims = await store.claim([Want(queue, KINDS, limit)], lease=30, worker="w")
            found[name] = {each.letter.id: each for each in claims}
            return [(_fields(each.letter), each.age) for _, each in sorted(found[name].items())]

        names = {id(store): name for name, store in self.stores.items()}
        await self.same(lambda store: claimed(names[id(store)], store))
        self.claims += [{name: found[name][each] for name in found} for each in found["memory"]]

    async def settle(self, which: list[int], move: Move) -> None:
        if self.claims:
            chosen = [self.claims[each % len(self.claims)] for each in dict.fromkeys(which)]
            names = {id(store): name for name, store in self.stores.items()}
            await self.same(lambda store: store.settle([(each[names[id(store)]], move) for each in chosen]))

    async def act(self, verb: str, which: list[int]) -> None:
        if self.names:
            ids = [self.names[each % len(self.names)] for each in which]
            await self.same(lambda store: store.act(verb, ids, by="ada", reason="why not"))

    async def plan(self, verb: str, query: str, page: int, limit: int | None) -> None:
        plan = Plan(id=f"p{self.plans}", verb=verb, query=query, by="ada", reason="all", limit=limit)
        self.plans += 1
        await self.same(lambda store: _carried_out(store, plan, page))

    async def edit(self, which: int, version: int) -> None:
        if self.names:
            name, told = self.names[which % len(self.names)], {"by": "ada", "reason": ""}
            await self.same(lambda store: store.edit(name, b"{}", "text/x", version=1 + version, **told))

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def retain(self) -> None:
        await self.same(lambda store: store.retain(Retention(delivered=30, archived=60)))

    async def look(self, query: str = "") -> None:
        """Compare everything that can be seen, of all letters or of those that *query* finds."""
        await self.same(lambda store: find_all(store, query, limit=7))
        await self.same(lambda store: store.count(parse(query)))
        await self.same(lambda store: store.groups(parse(query)))

    async def look_at_all(self) -> None:
        await self.look()
        await self.same(_tallied)
        await self.same(lambda store: store.oldest_failed())
        await self.same(lambda store: store.histories())
        await self.same(lambda store: store.expired(100))
        await self.same(_audited)


def _differences(one: Any, other: Any) -> str:
    """Say what differs, as short as can be."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return "; ".join(_differences(*pair) for pair in zip(one, other, strict=True) if pair[0] != pair[1])
    return f"{one!r} is not {other!r}"


async def _answer(called: Awaitable[Any]) -> Any:
    try:
        return _plain(await called)
    except RedriveError as refusal:
        return type(refusal).__name__, str(refusal)


def _plain(answer: Any) -> Any:
    """Return *answer* without what is the store's own: tokens and places."""
    if isinstance(answer, list):
        return [_plain(each) for each in answer]
    if hasattr(answer, "letter"):
        return _fields(answer.letter)
    return _fields(answer) if hasattr(answer, "token") else answer


def _fields(letter: Any) -> list[tuple[str, Any]]:
    return list(asdict(replace(letter, token=0)).items())


async def _carried_out(store: Store, plan: Plan, page: int) -> tuple[Any, ...]:
    """Carry a plan out; page by page stores may differ in how many letters they look at, in all they may not."""
    await store.start_plan(plan)
    acted: list[str] = []
    for _ in range(200):
        step = await store.step(plan.id, limit=page)
        acted += step.acted
        if step.plan.done:
            kept = replace(step.plan, cutoff="", cursor="")
            assert replace(await store.plan(plan.id), cutoff="", cursor="") == kept
            return acted, kept
    raise AssertionError("the plan never came to its end")


async def _tallied(store: Store) -> tuple[Any, ...]:
    tallies, counts = await store.tallies(), Counter[tuple[str, ...]]()
    for one in tallies:
        counts[one.queue, one.kind, one.status, one.category, one.policy, one.error_type, one.fingerprint] += one.count
    kept = books(tallies)
    assert kept["enqueued"] == sum(kept.values()) - kept["enqueued"]
    return sorted(counts.items()), kept


async def _audited(store: Store) -> list[Any]:
    return [
        (entry.at_us, entry.by, entry.verb, entry.target, entry.count, entry.reason) for entry in await store.audit()
    ]


async def _run(steps: list[Any]) -> None:
    with TemporaryDirectory(prefix="redrive-differences-") as folder:
        clock = ManualClock()
        async with AsyncExitStack() as stack:
            opened = {name: await stack.enter_async_context(open_store(name, Path(folder), clock)) for name in STORES}
            world = Stores(opened, clock)
            await world.same(lambda store: store.declare([QueueSpec(name="lane", ordered=True)]))
            for name, *told in steps:
                await getattr(world, name)(*told)
                await world.look()
            await world.look_at_all()


@settings(
    max_examples=int(os.environ.get("REDRIVE_DIFFERENCE_EXAMPLES", "15")),
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase is not Phase.shrink or "REDRIVE_DIFFERENCE_SHRINK" in os.environ],
    deadline=None,
)
@given(st.lists(STEPS, min_size=8, max_size=30))
def test_whatever_is_done_every_store_shows_the_same(steps):
    asyncio.run(_run(steps))
