"""I/O errors at the n-th request: callers hear of them, nothing told is lost, the store goes on by itself."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from tests.torture import iofault

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torture


@pytest.mark.parametrize("stays", [False, True], ids=["once", "until repaired"])
@pytest.mark.parametrize("fault", list(iofault.FAULTS))
@pytest.mark.parametrize("scenario", list(iofault.SCENARIOS))
async def test_an_io_error_at_any_request_loses_nothing(quick_folder: Path, scenario: str, fault: str, stays: bool):
    (quick_folder / "template").mkdir()
    await iofault.prepare(quick_folder / "template")
    refused = 0
    for at in itertools.count(1):
        ending = await iofault.run(quick_folder / "template", quick_folder / "run", scenario, fault, at, stays=stays)
        assert not ending.problems, f"{scenario}, {fault} at request {at}, stays={stays}: {ending.problems}"
        refused += ending.refused
        if not ending.met:
            break
    print(scenario, fault, at, refused)
    if (scenario, fault) != ("look", "ENOSPC"):  # looking writes nothing
        assert refused, "no caller ever heard of the fault"
