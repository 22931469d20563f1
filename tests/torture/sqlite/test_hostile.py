"""Hostile data through every path and verb: kept byte by byte, failed, shown, edited, replayed like any other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.torture import checker, workload
from tests.torture.nursery import ROOT
from typer.testing import CliRunner

from redrive import Reject, RetryPolicy, cli
from redrive.app import Redrive
from redrive.core.letter import BYTES, JSON, Draft, Letter, Status
from redrive.errors import DraftError, PayloadError, RedriveError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.torture

ONCE = RetryPolicy.exponential(first=0.01, cap=0.01, max_attempts=1)
DEEP = 100_000
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b31m\u202eevil\u2066"
MEGABYTE = 1 << 20

PAYLOADS = {
    "nul": b"\0" * 100,
    "every byte": bytes(range(256)),
    "not utf-8": b"\xff\xfe\xfa",
    "escapes": ESCAPES.encode(),
    "deep": b"[" * DEEP + b"]" * DEEP,
    "deep and open": b'{"a":' * DEEP,
    "big number": b"9" * 100_000,
    "surrogate in json": b'"\\ud800"',
    "duplicate keys": b'{"a":1,"a":2}',
    "empty": b"",
    "large": b"\0\x1b" * (32 * MEGABYTE),
}


class StrRaises(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    __repr__ = __str__


class StrIsHuge(Exception):
    def __str__(self) -> str:
        return "y\0" * (50 * MEGABYTE)


class StrIsNoText(Exception):
    def __str__(self) -> str:
        return 17  # type: ignore[return-value]  # noqa: PLE0307 - that is the attack


class StrExits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def in_circles() -> Exception:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def long_chain() -> Exception:
    error: Exception = ValueError("the deepest")
    for number in range(5_000):
        outer = ValueError(f"level {number}")
        outer.__cause__ = error
        error = outer
    return error


def deep_group() -> Exception:
    group: Exception = ExceptionGroup("many", [ValueError(str(number)) for number in range(10_000)])
    for _ in range(500):
        group = ExceptionGroup("outer", [group])
    return group


ERRORS = {
    "text that raises": StrRaises,
    "text of 100 MB": StrIsHuge,
    "text that is none": StrIsNoText,
    "text that exits": StrExits,
    "nul": lambda: ValueError("a\0b"),
    "lone surrogates": lambda: ValueError("\ud800\udfff"),
    "escapes": lambda: ValueError(ESCAPES),
    "new lines": lambda: ValueError("a\r\nlevel=critical msg=forged\n" * 100),
    "causes in circles": in_circles,
    "a chain of 5,000 causes": long_chain,
    "a deep group": deep_group,
    "a hostile name": lambda: type("\x1b[2J" * 5_000, (Exception,), {})("x"),
    "hostile arguments": lambda: ValueError(b"\xff" * MEGABYTE, object(), ["\ud800"]),
    "a key error of a surrogate": lambda: KeyError("\ud800"),
    "a reject": lambda: Reject(ESCAPES + "\0\ud800"),
}


async def refuse(payload: bytes, letter: Letter) -> None:
    raise ERRORS[letter.metadata["error"]]() if "error" in letter.metadata else ValueError("no")


async def wants_numbers(payload: dict[str, int]) -> None:
    pass


@pytest.fixture
async def app(quick_folder: Path) -> AsyncIterator[Redrive]:
    workload.quiet()
    app = Redrive(f"sqlite:///{quick_folder}/redrive.db")
    app.add_handler("bytes", refuse, policy=ONCE)
    app.add_handler("numbers", wants_numbers, policy=ONCE)
    async with app:
        yield app
    assert not checker.books_problems(quick_folder / "redrive.db")


async def run(app: Redrive, draft: Draft) -> Letter:
    """Let *draft* die, and return the dead letter."""
    await app.enqueue_many([draft])
    await app.run(until_idle=True, signals=False)
    letter = await app.desk.show(draft.id)
    assert letter.status is Status.FAILED
    return letter


async def through_every_verb(app: Redrive, letter: Letter) -> None:
    """Look at it in every way, edit it, and send it through its lives."""
    desk = app.desk
    assert letter.id in [each.id for each in (await desk.ls("status:failed")).letters]
    assert await desk.groups()
    await desk.explain(letter.id)
    await desk.what_if(letter.id, "exponential:max_attempts=8")
    edited = letter.payload + b"\0\x1b"
    await app.store.edit(
        letter.id, edited, letter.content_type, version=letter.payload_version, by="ada", reason=ESCAPES
    )
    if letter.content_type == BYTES:
        edited += b"\xff"
        done = await desk.edit(letter.id, edited, version=letter.payload_version + 1, reason=ESCAPES)
        assert len(done.diff) < MEGABYTE
    await desk.replay(letter.id, reason=ESCAPES)
    assert (await desk.show(letter.id)).payload == edited
    await desk.cancel(letter.id)
    await desk.restore(letter.id)
    await app.run(until_idle=True, signals=False)
    assert (await desk.show(letter.id)).failure_history
    await desk.archive(query="status:failed")
    await desk.purge(letter.id)
    await desk.stats()
    assert await desk.audit()


def draft(app: Redrive, kind: str, payload: bytes, **fields) -> Draft:
    return app.draft(kind, payload, metadata=fields)


@pytest.mark.parametrize("name", PAYLOADS)
async def test_a_hostile_payload_comes_back_byte_by_byte(app: Redrive, name: str):
    letter = await run(app, draft(app, "bytes", PAYLOADS[name]))
    assert letter.payload == PAYLOADS[name]
    assert letter.content_type == BYTES
    await through_every_verb(app, letter)


NOT_DECODABLE = [name for name in PAYLOADS if name != "duplicate keys"]


@pytest.mark.parametrize("name", NOT_DECODABLE)
async def test_a_payload_that_does_not_decode_is_a_validation_failure(app: Redrive, name: str):
    payload = Draft(id=f"json-{name}", queue="default", kind="numbers", payload=PAYLOADS[name], content_type=JSON)
    letter = await run(app, payload)
    assert letter.category == "validation"
    await through_every_verb(app, letter)


@pytest.mark.parametrize("name", ERRORS)
async def test_a_hostile_error_is_written_down_and_shown(app: Redrive, name: str):
    letter = await run(app, draft(app, "bytes", b"x", error=name))
    assert len(letter.last_error or "") < 20_000
    shown = (letter.last_error or "") + (letter.error_type or "") + (letter.fingerprint or "")
    assert not set(shown) & {"\0", "\x1b", "\x9b", "\x07"}
    shown.encode()  # no lone surrogates
    await through_every_verb(app, letter)


HOSTILE_NAMES = ["\0", ESCAPES, "x" * 100_000, "' OR 1=1; --", "%", "*"]


async def test_a_payload_that_cannot_be_written_is_refused_clearly(app: Redrive):
    deep: list[object] = []
    for _ in range(DEEP):
        deep = [deep]
    circle: list[object] = []
    circle.append(circle)
    for payload in (deep, circle, "\ud800", {"\ud800": 1}, object(), {1, object()}):
        with pytest.raises(PayloadError):
            await app.enqueue("bytes", payload)


@pytest.mark.parametrize("value", HOSTILE_NAMES)
async def test_an_id_is_a_uuid_or_refused_in_few_words(app: Redrive, value: str):
    with pytest.raises(DraftError, match="it must be a UUID") as caught:
        await app.enqueue("plain", b"x", id=value)
    assert len(str(caught.value)) < 300
    assert (await app.desk.ls()).letters == []


@pytest.mark.parametrize("field", ["kind", "queue", "key", "idempotency_key", "tenant", "origin"])
@pytest.mark.parametrize("value", HOSTILE_NAMES)
async def test_hostile_names_are_kept_and_found(app: Redrive, field: str, value: str):
    kind = value if field == "kind" else "plain"
    named = {} if field == "kind" else {field: value}
    receipt = await app.enqueue(kind, b"x", **named)
    letter = await app.desk.show(receipt.id)
    assert getattr(letter, field) == value
    assert [each.id for each in (await app.desk.ls("status:pending")).letters] == [receipt.id]
    await app.desk.stats()
    await app.desk.queues()
    await app.desk.cancel(receipt.id)


@pytest.mark.parametrize("field", ["kind", "queue", "key", "idempotency_key", "tenant", "origin", "id"])
async def test_a_name_that_is_no_text_is_refused_and_harms_nobody_else(app: Redrive, field: str):
    kind = "\ud800" if field == "kind" else "plain"
    named = {} if field == "kind" else {field: "\ud800"}
    with pytest.raises((RedriveError, ValueError)):
        await app.enqueue(kind, b"x", **named)
    assert (await app.enqueue("plain", b"x")).id


async def test_the_terminal_never_sees_an_escape(app: Redrive, quick_folder: Path):
    for name in ("escapes", "a hostile name", "new lines", "nul", "lone surrogates"):
        await run(app, draft(app, "bytes", ESCAPES.encode(), error=name))
    await app.enqueue(ESCAPES, ESCAPES, queue=ESCAPES, key=ESCAPES)
    letter = (await app.desk.ls("status:failed")).letters[0]
    await app.close()
    for n, command in enumerate((
        ["ls"], ["ls", "--json"], ["show", letter.id], ["show", letter.id, "--json"], ["groups"], ["groups", "--json"],
        ["explain", letter.id], ["stats"], ["queues"], ["replay", letter.id, "--reason", ESCAPES], ["audit"],
    )):  # fmt: skip
        by = say if n == 0 else say_here  # one real process shows that the way to its terminal is the same
        code, said = await asyncio.to_thread(by, quick_folder, command)
        assert code == 0, f"{command}: {said[-500:]}"
        assert not set(said) & {"\0", "\x1b", "\x9b", "\x07", "\u202e", "\u2066"}, f"{command}: {said!r}"


def say(folder: Path, command: list[str]) -> tuple[int, str]:
    """Run a command of redrive on the file of *folder*; return its code and all it said."""
    done = subprocess.run(
        [sys.executable, "-m", "redrive.cli", "--url", f"sqlite:///{folder}/redrive.db", *command],
        capture_output=True, check=False, cwd=folder, timeout=300,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
    )  # fmt: skip
    return done.returncode, (done.stdout + done.stderr).decode()


def say_here(folder: Path, command: list[str]) -> tuple[int, str]:
    """Do the same in this process, which costs a tenth."""
    arguments = ["--url", f"sqlite:///{folder}/redrive.db", *command]
    done = CliRunner().invoke(cli.app, arguments, env={"COLUMNS": "200"})
    return done.exit_code, done.output
