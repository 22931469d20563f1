"""Every field with every operator: a store finds, counts and acts on exactly what `Query.matches` lets through."""

from __future__ import annotations

import asyncio
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.stores.conftest import ON_UNPOOLED_STORES, UNPOOLED, make_store
from tests.stores.samples import (
    DELIVERED,
    OPERATOR,
    act,
    claim,
    dead,
    draft,
    failure,
    find_all,
    letter_id,
    put,
    retry,
    settle_all,
)

from redrive.core.letter import Category, Priority
from redrive.core.plan import Plan
from redrive.core.query import FIELDS, parse
from redrive.core.query.terms import quoted
from redrive.stores.clock import ManualClock

LAST = "\U0010ffff"  # no character comes after it
LONG = "Long " * 150  # longer than PostgreSQL's indexes take
ERROR = "error " * 110 + "The End"
# Two whose lower case has an ASCII letter, what SQL and escapes might mistake, beginnings of each other.
WORDS = ["plain", "Plain.two", "pl", "ABİ", "10 \u212a", "100%_\\", "a\x1ab", "\x1aL" + "0" * 64, "it's", "é𓀀", "*", ""]
NAMES_OF_ALL_KINDS = [
    *WORDS,
    f"pl{LAST}",
    f"pl{LAST}{LAST}a",
    LONG,
    LONG + "2",
    f"{'x' * 61}y",
    f"{'x' * 61}z",
    "\ud7ff",
]
GROUPS = ["aa11-v1", "aa22-v1", "AA33", f"aa{LAST}", "b" * 800, "b" * 800 + "2", "%", "c", "ABİ"]


async def one_of_each(store, clock: ManualClock) -> None:
    """Keep letters of every status, with every text in every field that takes it."""
    drafts = []
    for n, word in enumerate(NAMES_OF_ALL_KINDS):
        told = dict.fromkeys(("key", "idempotency_key", "origin", "tenant", "handler", "policy"), word)
        drafts.append(draft(f"named {n}", queue=f"q{word}", kind=f"k{word}", **told))
    for n, (word, group) in enumerate(product([*WORDS, ERROR], GROUPS)):
        what = failure(word, error_type=word, fingerprint=group, release=word, category=[*Category][n % len(Category)])
        drafts.append(draft(f"dead {n}", failure=what))
    await put(store, *drafts)
    clock.advance(100)
    for n, group in enumerate(GROUPS):  # these never died, so no list of groups has them
        await put(store, draft(f"never {n}"))
        await settle_all(store, retry(60.0 + n, what=failure(group, fingerprint=f"{group}-never")))
    await put(store, draft("first", priority=Priority.HIGH, generation=3, metadata={"n": 7, "t": "Plain"}, delay=90))
    await put(
        store,
        draft(
            "rich", queue="other", payload=b'{"n": 7, "list": ["ab\xc4\xb0"], "no": null}', headers=(("h", b"Plain"),)
        ),
    )
    await dead(store, draft("replayed"), what=failure("once", fingerprint="d"))
    await act(store, "replay", "replayed")
    await act(store, "archive", "dead 3", by=f"ada{LAST}")
    for n, word in enumerate(NAMES_OF_ALL_KINDS):  # a plan without an id gets one
        target = letter_id(f"dead {n + 10}")
        plan = Plan(id=word, verb=("replay", "archive")[n % 2], query=f"id:{target}", **OPERATOR)
        await store.step((await store.start_plan(plan)).id, limit=10)
    clock.advance(1)
    await put(store, "done")
    await settle_all(store, DELIVERED)
    await put(store, "runs")
    await claim(store)


def texts() -> list[str]:
    """Return values for fields of text: alone, with wildcards, searched for, several at once."""
    whole = [*NAMES_OF_ALL_KINDS, *GROUPS, "qplain", "absent", "PLAIN", "backing off", ERROR]
    whole = [word for word in whole if not any("\ud800" <= char <= "\udfff" for char in word)]
    alone = [quoted(word) for word in whole]
    begun = [f"{quoted(word[:n])}*" for word in whole for n in (2, 63) if word and "*" not in word]
    pieces = ["aa*22*", "*22*", "*-v1", "aa*zzz", "a*", f"*{LAST}", "*End", "*2", "*"]
    searched = [
        f"~{quoted(word)}"
        for word in ("abi", "k", "i", "plain", "LONG LONG", "long 2", "2", "aa", "end", LAST, "é", "%")
    ]
    several = [
        f"{alone[0]},{alone[2]},absent",
        "aa*,b*,q*",
        "~abi,~END",
        ",".join(f"{chr(0x4E00 + n)}*" for n in range(1_050)),
    ]
    return [*alone, *begun, *pieces, *searched, *several, ",".join(f"n{n}" for n in range(800)) + ",plain"]


NUMBERS = ["0", "1", "3", "7", "1,3", ">0", ">=3", "<1", "<=3", ">2.5", "-1", ">1e300", "1e20", ">0.1"]
SPANS = [">1s", "<1s", ">=1s", "<=101s", ">100s", "<-1s", ">60s", "<1w", ">0.000001s", "<=89s", "<=90s", ">1e9"]
PATHS = ["7", "07", "7.0", ">6", "<=7", "Plain", "~PLAIN", "pl*", "null", "absent", "~abi", "*"]
THOROUGH = ("key", "error")  # one that is kept as a name, one that is kept whole; of the others some values do
VALUES: dict[str, list[str]] = {
    "text": texts(),
    "prefix": texts(),
    "number": NUMBERS,
    "span": SPANS,
}
PATHED = {"metadata": ("n", "t", "absent"), "payload": ("n", "list.0", "no", "absent"), "header": ("h", "absent")}


def terms(field: str) -> list[str]:
    """Return a term for every value that *field* may be compared with, and the same turned round."""
    kind = FIELDS[field].kind
    if field in PATHED:
        values = [value for value in PATHS if field != "header" or value[0] not in "<>"]
        found = [f"{field}.{path}:{value}" for path, value in product(PATHED[field], values)]
    elif kind == "word":
        words = FIELDS[field].words
        found = [f"{field}:{value}" for value in (*words, f"~{words[0][:2]}", f"{words[-1][:2]}*", ",".join(words[:2]))]
    else:
        ids = [letter_id("rich"), letter_id("rich").upper(), letter_id("rich")[:8] + "*", f"~{letter_id('rich')[3:9]}"]
        values = VALUES[kind] if kind != "text" or field in THOROUGH else VALUES[kind][1::4]
        found = [f"{field}:{value}" for value in (*(ids if field == "id" else ()), *values)]
    return [*found, *(f"-{term}" for term in found[::3])]


async def mistaken(store, clock: ManualClock, queries: list[str]) -> dict[str, object]:
    """Return the queries for which the store finds or counts something else than it should."""
    everything, wrong = await find_all(store, limit=1_000), {}
    for n, text in enumerate(queries):
        query = parse(text)
        expected = [letter.id for letter in everything if query.matches(letter, clock.wall_us())]
        found = [letter.id for letter in await find_all(store, text, limit=1_000)]
        if found != expected or (n % 4 == 0 and await store.count(query) != len(expected)):
            wrong[text[:100]] = (len(expected), len(found))
    return wrong


def readable(queries: list[str]) -> list[str]:
    return [query for query in queries if len(query) < 4_000]


@ON_UNPOOLED_STORES
@pytest.mark.parametrize("field", FIELDS)
async def test_a_field_means_the_same_to_every_store_whatever_it_is_compared_with(store, clock, field):
    await one_of_each(store, clock)
    assert await mistaken(store, clock, readable(terms(field))) == {}
    dead_only = [f"status:failed {term}" for term in readable(terms(field))[:: 1 if field in ("error", "group") else 7]]
    assert await mistaken(store, clock, dead_only) == {}


@pytest.mark.parametrize(
    "text",
    ["group:aa*22*", "group:~33", "group:aa", "-group:aa*1*", "group:*v1", "error:~abi", f"-error:{quoted(ERROR)}"],
)
async def test_an_act_touches_nothing_outside_its_query(store, clock, text):
    await one_of_each(store, clock)
    query = parse(f"status:failed {text}")
    expected = {letter.id for letter in await find_all(store, limit=1_000) if query.matches(letter, clock.wall_us())}
    plan = await store.start_plan(Plan(verb="archive", query=text, **OPERATOR))
    acted: set[str] = set()
    while not (step := await store.step(plan.id, limit=50)).plan.done:
        acted.update(step.acted)
    assert acted | {*step.acted} == expected


@pytest.mark.parametrize(
    "text", ["group:~a", "group:aa*", "-group:aa", "kind:* group:b", "error:~abi", "category:network"]
)
async def test_groups_count_the_dead_letters_that_the_query_finds(store, clock, text):
    await one_of_each(store, clock)
    groups = await store.groups(parse(text), limit=1_000)
    found = await find_all(store, f"status:failed {text}", limit=1_000)
    assert sum(group.count for group in groups) == len(found)


@pytest.mark.parametrize("name", UNPOOLED)
def test_any_terms_together_mean_the_same_to_every_store(name):
    some = st.sampled_from([*FIELDS]).flatmap(lambda field: st.sampled_from(terms(field)))
    queries = st.lists(some, min_size=1, max_size=3).map(" ".join).filter(lambda text: len(text) < 4_000)
    with asyncio.Runner() as runner, TemporaryDirectory() as folder:
        clock = ManualClock()
        store = make_store(name, Path(folder), clock)
        runner.run(store.open())
        runner.run(one_of_each(store, clock))

        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(queries)
        def means_the_same(text: str) -> None:
            assert runner.run(mistaken(store, clock, [text])) == {}

        try:
            means_the_same()
        finally:
            runner.run(store.close())
