"""A query that the database answers in part: what it does not match counts nowhere, on every store that is kept."""

from __future__ import annotations

import asyncio
from uuid import NAMESPACE_OID, uuid4, uuid5

import pytest
from tests.stores.conftest import server_url
from tests.stores.samples import failure
from typer.testing import CliRunner

from redrive import cli
from redrive.core.letter import Draft
from redrive.wiring import open_store


@pytest.fixture(params=["sqlite", "postgres16", "postgres18"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'letters.db'}"
    return f"{server_url(int(request.param[-2:]))}?schema=acting_{uuid4().hex[:12]}"


def redrive(url: str, *arguments: str) -> str:
    done = CliRunner().invoke(cli.app, ["--url", url, *arguments])
    assert done.exit_code == 0, done.output
    return done.output


async def six_dead_letters(url: str) -> None:
    store = open_store(url)
    await store.open()
    ids = [str(uuid5(NAMESPACE_OID, str(n))) for n in range(6)]
    await store.put([Draft(id_, "q", "k", b'{"user": %d}' % n, failure=failure()) for n, id_ in enumerate(ids)])
    await store.close()


@pytest.mark.parametrize("verb", ["archive", "replay"])
def test_a_query_on_the_payload_acts_on_what_it_matches_and_skips_nothing(url, verb):
    redrive(url, "migrate")
    asyncio.run(six_dead_letters(url))
    said = redrive(url, verb, "-q", "status:failed payload.user:3", "--yes")
    assert f"{verb}: 1 letter" in said
    assert "skipped" not in said
