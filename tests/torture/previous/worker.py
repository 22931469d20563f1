"""
A worker of the previous version, kept as it was.

It sends the statements beside it and no others, imports nothing of redrive, and asks again only after the errors
that it knew; any other error ends it, which is what an upgrade must not do to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
import signal
import time
import uuid
from pathlib import Path
from typing import Any

import asyncpg
from tests.torture.history import Log

KINDS = ("ok", "flaky", "bad")
ASKED_AGAIN = ("40001", "40P01", "55P03")  # serialization failure, deadlock, lock timeout
TURNS = (0, 1, 0, 0, 1, 0, 2, 0, 1, 0)
LEASE = 60.0
_BLOCKS = (Path(__file__).parent / "statements.sql").read_text().split("-- name: ")[1:]
SQL = {name.strip(): body.strip() for name, _, body in (block.partition("\n") for block in _BLOCKS)}
SEQ, ID, KIND, ATTEMPTS, TOKEN = 0, 1, 3, 10, 22  # columns of what an exchange returns


def work(folder: str, *, url: str, seed: int = 0) -> None:
    """In a process of its own: put letters and handle them until asked to end."""
    asyncio.run(Worker(Path(folder), url, seed).run())


class Worker:
    """Three connections: one works, one puts, one shows that it lives."""

    def __init__(self, folder: Path, url: str, seed: int) -> None:
        self.log, self.url, self.name = Log(folder / "history"), url, f"previous-{seed}"
        self.rng, self.ended = random.Random(seed), asyncio.Event()
        self.held: dict[int, int] = {}  # places and tokens
        self.dead: list[str] = []  # letters to replay
        self.seen: int | None = None  # where the clock of leases stood at the moment *since*, in microseconds
        self.since = 0.0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.ended.set)
        async with asyncio.TaskGroup() as group:
            for duty in (self.handle, self.produce, self.live):
                group.create_task(self._on_a_connection(duty))

    async def _on_a_connection(self, duty: Any) -> None:
        connection = await asyncpg.connect(self.url, command_timeout=60)
        try:
            await duty(connection)
        finally:
            await connection.close()

    async def ask(self, connection: Any, name: str, *arguments: Any) -> list[Any]:
        """Send a statement; one that has a call's number is told if it is asked again."""
        for _ in range(30):
            try:
                return await connection.fetch(SQL[name], *arguments)
            except asyncpg.PostgresError as error:
                if error.sqlstate not in ASKED_AGAIN:
                    raise
            if name in ("put", "exchange"):
                arguments = (arguments[0], True, *arguments[2:])
            await asyncio.sleep(0.01)
        message = f"{name} was in the way of others for too long"
        raise TimeoutError(message)

    # ------------------------------------------------------------------ handling

    async def handle(self, connection: Any) -> None:
        settled: list[dict[str, Any]] = []
        rounds = 0
        while settled or not self.ended.is_set():
            claimed = await self.exchange(connection, settled)
            settled = [self.attempt(row) for row in claimed]
            rounds += 1
            if rounds % 50 == 0:
                await self.ask(connection, "fold", 1_000)
            if not claimed:
                await self.look(connection)
                await asyncio.sleep(0.005)

    async def exchange(self, connection: Any, settled: list[dict[str, Any]]) -> list[Any]:
        """Settle and claim in one round trip."""
        delivered = sorted((move["ref"], move["token"]) for move in settled if move["to"] == "delivered")
        others = [move for move in settled if move["to"] != "delivered"]
        wants = [{"queue": "default", "kinds": KINDS, "most": 20, "generation": None, "sinces": [None] * 9}]
        found = await self.ask(
            connection, "exchange", _new_call(), False, False,
            [ref for ref, _ in delivered], [token for _, token in delivered],
            json.dumps(sorted(others, key=lambda move: move["ref"])) if others else None,
            json.dumps([] if self.ended.is_set() else wants), LEASE, self.name, list(TURNS), True, None, None,
        )  # fmt: skip
        refused = {-row[SEQ] for row in found if row[SEQ] < 0}
        self._note(settled, refused)
        claimed = [row for row in found if row[SEQ] > 0]
        self.held |= {row[SEQ]: row[TOKEN] for row in claimed}
        if claimed:
            self.log.write(*[("claimed", row[ID], row[TOKEN]) for row in claimed])
        return claimed

    def _note(self, settled: list[dict[str, Any]], refused: set[int]) -> None:
        for move in settled:
            self.held.pop(move["ref"], None)
            if move["ref"] in refused:
                self.log.write(("refused", move["id"], move["token"]))
                continue
            self.log.write(("settled", move["id"], move["token"], move["to"], move["why"]))
            if move["to"] == "failed":
                self.dead.append(move["id"])

    def attempt(self, row: Any) -> dict[str, Any]:
        """Run a letter's handler; return what becomes of the letter."""
        self.log.write(("run_start", row[ID], row[TOKEN]))
        if row[KIND] == "ok" or (row[KIND] == "flaky" and row[ATTEMPTS] > 1):
            self.log.write(("effect", row[ID]), ("run_end", row[ID], "ok"))
            return {"id": row[ID], "ref": row[SEQ], "token": row[TOKEN], "to": "delivered", "why": "succeeded"}
        return _failed(row, to="failed" if row[KIND] == "bad" else "pending")

    async def look(self, connection: Any) -> None:
        """See what is left before a rest, as every worker does."""
        queues, kinds = ["default"] * len(KINDS), list(KINDS)
        await self.ask(connection, "place_arrivals", queues)
        await self.ask(connection, "make_sure")
        await self.ask(connection, "left", queues, kinds, None, None)

    # ------------------------------------------------------------------ beside

    async def live(self, connection: Any) -> None:
        """Renew the claims; nobody dies in this story, so nobody's lease may end."""
        kinds = json.dumps([["default", kind] for kind in KINDS]).encode()
        await self.ask(connection, "declare", "default", False, None, None, None, None)
        while not self.ended.is_set():
            held = sorted(self.held.items())
            refs, tokens = [ref for ref, _ in held], [token for _, token in held]
            await self.tick(connection, "extend", self.name, kinds, len(held), refs, tokens, True, None, None, LEASE)
            over = (await self.tick(connection, "tick", None))["over"]
            if over and (lost := await self.ask(connection, "expired", None, 200)):
                message = f"{len(lost)} leases have ended although their workers live"
                raise RuntimeError(message)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), 0.05)

    async def tick(self, connection: Any, name: str, *arguments: Any) -> Any:
        """Send a statement that moves the clock of leases on by what this worker measured; return the clock's row."""
        asked = time.monotonic()
        tick = (self.seen, 0 if self.seen is None else round((asked - self.since) * 1e6))
        arguments = (*tick, *arguments) if name == "tick" else (*arguments, *tick)
        clock = (await self.ask(connection, name, *arguments))[0]
        self.seen, self.since = clock["lease_us"], asked if clock["moved"] else time.monotonic()
        return clock

    async def produce(self, connection: Any) -> None:
        while not self.ended.is_set():
            await self.rng.choice((self.put, self.put, self.enqueue, self.replay))(connection)
            await asyncio.sleep(self.rng.uniform(0, 0.01))

    async def put(self, connection: Any) -> None:
        """Keep some letters, and offer the last one once more under its key."""
        ids = [str(uuid.uuid4()) for _ in range(self.rng.choice((1, 3, 8)))]
        kinds = [self.rng.choice(("ok", "ok", *KINDS)) for _ in ids]
        key = f"key-{ids[-1]}"
        self.log.write(*[("offered", each) for each in ids])
        assert not await self._put(connection, ids, kinds, [None] * (len(ids) - 1) + [key])
        self.log.write(*[("accepted", each) for each in ids])
        [(_, kept)] = await self._put(connection, [str(uuid.uuid4())], kinds[-1:], [key])
        assert kept == ids[-1]
        await self.ask(connection, "notify", "outbox_default", self.name)

    async def _put(self, connection: Any, ids: list[str], kinds: list[str], keys: list[str | None]) -> list[Any]:
        n = len(ids)
        columns = [ids, ["default"] * n, kinds, [b"{}"] * n, [], [], keys, *[[] for _ in range(11)], None]
        return await self.ask(connection, "put", _new_call(), False, *columns, None)

    async def enqueue(self, connection: Any) -> None:
        """Keep a letter in a transaction of the user's own, as people do in SQL."""
        letter = str(uuid.uuid4())
        self.log.write(("offered", letter))
        async with connection.transaction():
            await connection.execute("SELECT redrive.outbox_enqueue('ok', '{}', p_id => $1)", letter)
        self.log.write(("accepted", letter))

    async def replay(self, connection: Any) -> None:
        """Replay a dead letter, as people do in SQL."""
        if self.dead:
            letter = self.dead.pop()
            await connection.execute("SELECT redrive.outbox_replay($1, NULL, 'ana', 'again')", letter)
            self.log.write(("replayed", letter))


def _new_call() -> int:
    return secrets.randbits(62) + 1


def _failed(row: Any, *, to: str) -> dict[str, Any]:
    why = "the_handler_gave_up" if to == "failed" else "again_in_20_ms"
    line = {"why": why, "error_type": "OSError", "error": "away", "category": "network", "rule": "type", "delay": 0.02}
    return {
        "id": row[ID], "ref": row[SEQ], "token": row[TOKEN], "to": to, "why": why, "delay": 20_000, "uncount": 0,
        "loss": 0, "failed": True, "odd": False, "category": "network", "error_type": "OSError", "error": "away",
        "fingerprint": "f1", "title": "away", "policy": "quick", "release": None, "try": line,
    }  # fmt: skip
