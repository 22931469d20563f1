"""The command line on a SQLite file of the test's own, and a short way to fill that file."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.desk.conftest import Mill
from typer.testing import CliRunner

from redrive import cli
from redrive.stores.sqlite import SqliteStore


@dataclass
class Terminal:
    """Runs commands on one file."""

    path: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def __call__(self, *arguments: str, answer: str | None = None, code: int = 0):
        done = CliRunner().invoke(cli.app, ["--url", self.url, *arguments], input=answer)
        assert done.exit_code == code, done.output
        return done

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code).stdout)

    def fill(self, work) -> Any:
        """Open the file and let *work* do with it what it wants."""

        async def filling():
            store = SqliteStore(self.path)
            await store.open()
            try:
                return await work(Mill(store, None))
            finally:
                await store.close()

        return asyncio.run(filling())

    def until(self, happened) -> None:
        """Wait until the books, which another process changes, are as *happened* wants them."""
        for _ in range(600):
            if happened(self.json("stats")["books"]):
                return
        pytest.fail("it never happened")

    def statuses(self) -> dict[str, str]:
        return {one["id"]: one["status"] for one in self.json("ls", "-n", "1000")["letters"]}


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Keep the settings of whoever runs the tests out of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(cli.__file__).parents[2]))  # processes of the test find the same redrive
    for name in ("REDRIVE_URL", "REDRIVE_CONFIG", "REDRIVE_APP", "VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def redrive(tmp_path):
    terminal = Terminal(tmp_path / "letters.db")
    terminal("migrate")
    return terminal


@pytest.fixture
def failures(redrive):
    """Three failed orders and two failed mails."""

    async def work(mill):
        orders = [await mill.failed("order.created", error=f"order {n} is bad") for n in range(3)]
        mails = [await mill.failed("mail.sent", fingerprint="f2", error="no address") for _ in range(2)]
        return orders, mails

    return redrive.fill(work)
