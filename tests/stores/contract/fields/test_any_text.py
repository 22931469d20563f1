"""Whatever text a letter has anywhere, every store keeps it, and everybody goes on working."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.stores.conftest import UNPOOLED, make_store
from tests.stores.samples import KIND, QUEUE, act, check_books, dead, draft, failure, get, letter_id, put

from redrive.core.letter import Draft, Status
from redrive.core.moves import Move
from redrive.core.plan import Plan
from redrive.core.query import parse
from redrive.errors import PayloadError
from redrive.stores.clock import ManualClock
from redrive.stores.contract import QueueSpec, Want, WorkerBeat

SHORTENED = "\x1aL" + sha256(b"nobody").hexdigest()  # as PostgreSQL writes names that are too long for an index
LOOKALIKES = [
    SHORTENED,
    "beginning" + SHORTENED,
    "\x1a" + SHORTENED,
    "\x1a001a" + SHORTENED[1:],
    "x" * 700 + SHORTENED,
    SHORTENED + "x" * 700,
    "\x1a" * 700,
    "\x1a00",
    "\0" * 400,
    "é" * 400,
    "𓀀" * 151,
]
_PIECES = ["\x1a", "\x1aL", "\0", "0", "001a", "a", "L", SHORTENED, "é", "𓀀", "\U0010ffff", "'", "\\", "x" * 160]
_FIELDS = ("queue", "kind", "content_type", "key", "idempotency_key", "origin", "handler", "tenant", "policy")


def texts(store_name: str) -> st.SearchStrategy[str]:
    """Return texts that are most unlike plain ones; SQLite refuses lone surrogates in what a sender says."""
    pieces = _PIECES if store_name == "sqlite" else [*_PIECES, "\udcff", "\ud83d"]
    return st.lists(st.sampled_from(pieces), min_size=1, max_size=12).map("".join)


async def live_a_whole_life(store, text: str) -> None:
    """Let a letter that has *text* everywhere be put, claimed, lost, failed, found, replayed and delivered."""
    letter_id, told = str(uuid4()), dict.fromkeys(_FIELDS, text)
    await store.declare([QueueSpec(name=text)])
    await store.put([Draft(id=letter_id, payload=b"x", headers=(("h", text.encode(errors="replace")),), **told)])
    what = failure(text, error_type=text, rule=text, fingerprint=text, template=text, release=text)
    await settle(store, text, Move(Status.PENDING, text, failure=what, policy=text))
    await settle(store, text, Move(Status.FAILED, text, failure=what, policy=text))
    await look_at_everything(store, letter_id, told, what)

    await store.act("replay", [letter_id], by=text, reason=text)
    [cycle] = (await store.get(letter_id)).failure_history
    assert (cycle.last_error, cycle.error_type, cycle.why, cycle.replayed_by, cycle.reason) == (text,) * 5
    assert [(one.error_type, one.why, one.rule, one.policy) for one in cycle.tries] == [(text,) * 4] * 2
    await store.act("cancel", [letter_id], by=text, reason=text)
    assert (await store.get(letter_id)).why == f"archived by {text}"
    await check_books(store)
    await store.act("purge", [letter_id], by=text, reason=text)
    assert {(entry.by, entry.reason) for entry in await store.audit(limit=3)} == {(text, text)}


async def settle(store, text: str, move: Move) -> None:
    want = Want(text, (text,), 10)
    [claim] = await store.claim([want], lease=1.0, worker=text)
    assert (claim.letter.queue, claim.letter.kind, claim.letter.key, claim.letter.worker) == (text,) * 4
    assert await store.extend(WorkerBeat(name=text, kinds=(), in_flight=1), [claim], lease=1.0) == []
    assert await store.settle([(claim, move)]) == (True,)
    assert not (await store.backlog([want])).in_flight


async def look_at_everything(store, letter_id: str, told: dict[str, str], what) -> None:
    text = told["key"]
    letter = await store.get(letter_id)
    assert {field: getattr(letter, field) for field in told} == told
    found = (letter.last_error, letter.error_type, letter.fingerprint, letter.why, letter.release)
    assert found == (what.message, what.error_type, what.fingerprint, text, text)
    page = await store.find(parse("status:failed"))
    assert letter_id in [each.id for each in page.letters]
    assert text in {tally.queue for tally in await store.tallies()} & {tally.kind for tally in await store.tallies()}
    assert (text, text) in {(each.fingerprint, each.title) for each in await store.groups(parse(""))}
    assert text in {state.spec.name for state in await store.queues()}
    assert text in {beat.name for beat in await store.workers()}
    assert (await store.oldest_failed()).last_error is not None


@pytest.mark.parametrize("text", LOOKALIKES, ids=range(len(LOOKALIKES)))
async def test_a_letter_lives_its_whole_life_whatever_its_text_looks_like(store, text):
    await live_a_whole_life(store, text)


@pytest.mark.parametrize("name", UNPOOLED)
def test_any_text_anywhere_comes_back_as_it_was(name):
    with asyncio.Runner() as runner, TemporaryDirectory() as folder:
        store = make_store(name, Path(folder), ManualClock())
        runner.run(store.open())

        @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
        @given(texts(name))
        @example("\x1a" * 3 + SHORTENED)
        def lives(text: str) -> None:
            runner.run(live_a_whole_life(store, text + "!"))

        try:
            lives()
        finally:
            runner.run(store.close())


# ---------------------------------------------------------------------- bytes that are no text

NO_TEXT = "caf\udce9"  # what a program gets of an argument in another encoding


async def test_whatever_is_said_of_an_act_it_is_carried_out_and_kept(store):
    said = {"by": NO_TEXT, "reason": NO_TEXT}
    await dead(store, "a", "b")
    await store.edit(letter_id("a"), b"{}", "application/json", version=1, **said)
    await store.act("replay", [letter_id("a")], **said)
    plan = await store.start_plan(Plan(verb="archive", query="status:failed", **said))
    assert (await store.step(plan.id, limit=10)).acted == (letter_id("b"),)
    await store.pause(QUEUE, paused=True, **said)
    kept = "caf\\udce9" if "sqlite" in type(store).__module__ else NO_TEXT  # SQLite writes it out
    assert (await store.plan(plan.id)).reason == kept
    assert {(entry.by, entry.reason) for entry in await store.audit()} == {(kept, kept)}
    [state] = await store.queues()
    assert (state.paused_by, state.reason) == (kept, kept)


@pytest.mark.parametrize("field", _FIELDS)
async def test_a_name_that_is_no_text_is_kept_and_acted_on_or_refused_clearly(store, field):
    odd = draft("a", **{"queue": QUEUE, "kind": KIND, field: NO_TEXT})
    if "sqlite" in type(store).__module__:
        with pytest.raises(PayloadError, match="lone surrogate"):
            await store.put([odd])
        await put(store, "b")
        return
    await put(store, odd)
    assert getattr(await get(store, "a"), field) == NO_TEXT
    [cancelled] = await act(store, "cancel", "a")
    assert getattr(cancelled, field) == NO_TEXT
    await act(store, "purge", "a")
