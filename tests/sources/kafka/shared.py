"""The broker that tests share: one for all processes of a run, and how a test comes by it and leaves it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.servers import kafka, lending
from tests.sources.kafka.needed import needed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


@dataclass(frozen=True)
class SharedBroker:
    """Where it is; nobody kills it, or forbids things of others' topics and groups."""

    bootstrap: str


@contextmanager
def shared(config: pytest.Config) -> Iterator[SharedBroker]:
    """Give the broker of the run: a worker of xdist borrows it, and a process that runs all tests has its own."""
    with needed():
        if hasattr(config, "workerinput"):
            yield SharedBroker(lending.ask(config.workerinput["lender"], "broker"))
        else:
            with kafka.lent() as bootstrap:
                yield SharedBroker(bootstrap)
