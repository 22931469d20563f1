"""A reader of an example, with servers of its own: an empty database, and a broker."""

from __future__ import annotations

import shutil

import pytest
from tests.examples.reader import EXAMPLES, Reader
from tests.servers.kafka import Broker
from tests.sources.kafka.needed import needed
from tests.stores.conftest import server_url


@pytest.fixture
def reader(tmp_path) -> Reader:
    """Give a reader with a copy of the examples."""
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__", "*.db*"))
    return Reader(tmp_path / "examples")


@pytest.fixture
def database():
    """Give the URL of an empty database."""
    import psycopg  # noqa: PLC0415 - only where there is a driver

    url = server_url()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS examples WITH (FORCE)")
        connection.execute("CREATE DATABASE examples")
        yield url.removesuffix("/postgres") + "/examples"
        connection.execute("DROP DATABASE examples WITH (FORCE)")


@pytest.fixture
def broker():
    """Give a broker of its own, because the examples name their topics."""
    pytest.importorskip("confluent_kafka")
    with needed(), Broker() as running:
        yield running
