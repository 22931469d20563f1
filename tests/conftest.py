"""What holds for every test: no settings of the developer's own, no deadlines on a busy machine."""

from __future__ import annotations

import faulthandler
import functools
import gc
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from tests.servers.lending import Lender
from typer.main import get_command

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long one example takes says more of the machine than of the code. CI tries the same examples each time, so that
# what it says is about the change; on a developer's machine every run looks for new ones.
STEADY = "REDRIVE_TEST_STEADY" in os.environ
settings.register_profile("redrive", deadline=None, derandomize=STEADY, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("redrive")


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the collected tests, which stay until the end."""
    gc.collect()
    gc.freeze()


LENDER = pytest.StashKey[Lender]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist where to ask for the servers that all workers share; they end with the run."""
    config: pytest.Config = node.config
    if LENDER not in config.stash:
        from tests.servers.kafka import lent  # noqa: PLC0415 - only who leads a run

        config.stash[LENDER] = Lender(broker=lent)
        config.add_cleanup(config.stash[LENDER].close)
    node.workerinput["lender"] = config.stash[LENDER].address


# A run whose tests are done ends within seconds, unless a test left a thread behind that never ends.
SECONDS_TO_END = 60


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End a run that hangs after its last test, and show where. (A worker of xdist waits here for the others.)"""
    if not hasattr(session.config, "workerinput"):
        faulthandler.dump_traceback_later(SECONDS_TO_END, file=sys.__stderr__, exit=True)


@pytest.fixture(autouse=True, scope="session")
def _settings_of_the_developer_do_not_reach_the_tests() -> Iterator[None]:
    """Hide REDRIVE_*; a switch of the tests themselves is called REDRIVE_TEST_*."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("REDRIVE_")]:
            if not name.startswith("REDRIVE_TEST_"):
                patch.delenv(name)
        yield


@pytest.fixture(autouse=True, scope="session")
def _commands_are_made_once() -> Iterator[None]:
    """Typer makes all commands anew for each one that a test runs in this process, which takes longer than most."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", functools.cache(get_command), raising=False)
        yield


@pytest.fixture(autouse=True)
def _no_test_leaves_its_log_behind() -> Iterator[None]:
    """A command that ran inside a test set up the log on that test's own streams, which are closed by now."""
    yield
    structlog.reset_defaults()
