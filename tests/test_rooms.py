"""The rooms are kept by a machine, and the machine is checked: planted violations must be caught."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path = ROOT, stdin: str = "") -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(cwd / "src"), "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(command, cwd=cwd, env=env, input=stdin, capture_output=True, text=True, check=False)


def lint_imports(cwd: Path) -> subprocess.CompletedProcess[str]:
    return run(Path(sys.executable).with_name("lint-imports"), "--no-cache", cwd=cwd)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def plant(copy: Path, module: str, line: str) -> None:
    path = copy / "src" / "redrive" / module
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "__init__.py").touch()
    text = path.read_text() if path.exists() else ""
    path.write_text(f"{text}\n{line}\n")


def test_every_room_keeps_to_its_place():
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
    [
        ("core/letter/letter.py", "import asyncio", "redrive.core is not allowed to import asyncio"),
        ("core/letter/letter.py", "import time", "redrive.core is not allowed to import time"),
        (
            "core/letter/letter.py",
            "from redrive.stores import contract",
            "redrive.core is not allowed to import redrive.stores",
        ),
        ("stores/planted.py", "import redrive.desk", "redrive.stores is not allowed to import redrive.desk"),
        ("engine/planted.py", "import redrive.desk", "redrive.engine is not allowed to import redrive.desk"),
        ("signals/planted.py", "import pickle", "redrive is not allowed to import pickle"),
        ("helpers.py", "", "redrive.helpers"),
    ],
)
def test_a_planted_violation_is_caught(copy: Path, module: str, line: str, complaint: str):
    plant(copy, module, line)
    result = lint_imports(copy)
    assert result.returncode == 1, result.stdout + result.stderr
    assert complaint in result.stdout


def test_a_room_that_imports_the_public_names_looks_up(copy: Path):
    plant(copy, "app.py", "")
    plant(copy, "__init__.py", "from redrive.app import Planted")
    plant(copy, "stores/planted.py", "from redrive import Planted")
    assert "redrive.stores is not allowed to import redrive.app" in lint_imports(copy).stdout


BANNED = [
    "import datetime\n\nnow = datetime.datetime.now(datetime.UTC)\n",
    "from datetime import UTC, datetime\n\nnow = datetime.now(UTC)\n",
    "import time\n\nnow = time.time()\n",
    "from time import monotonic\n\nnow = monotonic()\n",
    "import random\n\ndraw = random.random()\n",
]


def lint_file(name: str, code: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    return run(ruff, "check", "--no-cache", "--select=TID251", "--stdin-filename", name, "-", stdin=code).stdout


@pytest.mark.parametrize("code", BANNED)
@pytest.mark.parametrize("module", ["core/decide.py", "desk/replay.py", "engine/worker/processor.py", "app.py"])
def test_nobody_else_reads_a_clock_or_rolls_dice(module: str, code: str):
    assert "TID251" in lint_file(f"src/redrive/{module}", code)


@pytest.mark.parametrize("code", BANNED)
@pytest.mark.parametrize("module", ["engine/clock.py", "stores/clock.py"])
def test_the_clocks_may_read_the_clock(module: str, code: str):
    assert "TID251" not in lint_file(f"src/redrive/{module}", code)
