"""`redrive subscriptions`, on a server and where there is none."""

from __future__ import annotations

import asyncio
import json

from typer.testing import CliRunner

from redrive import cli


def run(url: str, *words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli.app, ["--url", url, "subscriptions", *words])
    assert done.exit_code == code, done.output
    return done.output


async def _empty(url: str) -> None:
    import asyncpg  # noqa: PLC0415 - only where there is a driver

    from redrive.stores.postgres import PostgresStore  # noqa: PLC0415

    store = PostgresStore(url)
    await store.open()
    await store.close()
    connection = await asyncpg.connect(url)
    await connection.execute("DELETE FROM redrive.subscription")
    await connection.close()


def test_subscriptions_are_added_listed_and_removed(url):
    asyncio.run(_empty(url))  # the commands have event loops of their own, too
    assert "receipt.send now gets a letter of every order.paid" in run(
        url, "add", "order.paid", "receipt.send", "--queue", "mail"
    )
    assert "gets already" in run(url, "add", "order.paid", "receipt.send", "--queue", "mail")
    found = {"subscriptions": [{"event": "order.paid", "handler": "receipt.send", "queue": "mail"}]}
    assert json.loads(run(url, "--json")) == found
    assert "receipt.send" in run(url, "list")
    removed = json.loads(run(url, "remove", "order.paid", "receipt.send", "--json"))
    assert (removed["subscribed"], removed["changed"]) == (False, True)
    assert "got no letters" in run(url, "remove", "order.paid", "receipt.send")


def test_other_stores_say_that_they_cannot(tmp_path):
    url = f"sqlite:///{tmp_path / 'redrive.db'}"
    assert CliRunner().invoke(cli.app, ["--url", url, "migrate"]).exit_code == 0
    assert "only PostgreSQL broadcasts" in run(url, code=1)
