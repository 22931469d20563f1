"""The harness's own memory: what a killed process had begun to write is not taken for what it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.torture.history import History, Log

if TYPE_CHECKING:
    from pathlib import Path


def test_a_line_that_a_kill_has_torn_is_left_out(tmp_path: Path):
    log = Log(tmp_path)
    log.write(("accepted", "a"), ("settled", "a", 1, "delivered", "succeeded"))
    log.close()
    [path] = tmp_path.glob("*.log")
    path.write_text(path.read_text() + "settled b")
    history = History(tmp_path)
    assert history.accepted == {"a"}
    assert set(history.settled) == {"a"}
