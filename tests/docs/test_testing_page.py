"""The page about tests, pasted into files and run as a user would."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "how-to" / "test-your-handlers.md"


def test_the_page_can_be_pasted_and_run(tmp_path):
    files = {block.title: block.code for block in blocks(PAGE) if block.title}
    assert {"shop.py", "test_shop.py", "test_shop_async.py", "pytest.ini"} <= files.keys()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    assert list(tmp_path.glob("*.db")) == []
