"""
One case in a process of its own.

Owns how a case is started, where its files lie and how its answer comes back. A case is a
function `case(folder, **arguments) -> dict`; it starts with an empty interpreter, quiet
disks and nothing beside it. Knows no benchmark.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
ABSENT = "absent"
_IN_MEMORY = {"tmpfs", "ramfs"}
_LIMIT = 1_800  # seconds; a case that hangs must not hang the run
_TAIL = 4_000  # characters of a broken case's output that are shown


class CaseFailed(Exception):
    """A case broke, or did not handle what it should have."""


def measure(
    case: Callable[..., dict[str, Any]],
    folder: Path,
    *,
    root: Path = ROOT,
    python: Path | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """
    Run *case* on *folder* in a new process and return its answer; raise CaseFailed with what it said.

    *root* is the checkout whose sources and benchmarks the process imports, *python* the one that runs it.
    """
    name = f"{case.__module__}:{case.__qualname__}"
    answer, output = folder / "answer.json", folder / "output.txt"
    answer.unlink(missing_ok=True)
    print(f"… {case.__module__.rpartition('.')[2]} {case.__qualname__} {arguments}", flush=True)
    os.sync()  # what earlier cases wrote must not be flushed on this one's time
    command = [str(python or sys.executable), "-m", "benchmarks.fresh", name, str(folder), json.dumps(arguments)]
    with output.open("wb") as sink:
        ended = subprocess.run(
            command, cwd=root, env=environment(root), stdout=sink, stderr=sink, timeout=_LIMIT, check=False
        )
    if ended.returncode or not answer.exists():
        raise CaseFailed(f"{name} {arguments} ended with {ended.returncode}:\n{_tail(output)}")
    return dict(json.loads(answer.read_text()))


def environment(root: Path = ROOT) -> dict[str, str]:
    """Return this environment without the user's own redrive settings, and with the sources of *root* importable."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}
    return kept | {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-_TAIL:]


# ---------------------------------------------------------------------- where files lie


@contextlib.contextmanager
def new_folder() -> Iterator[Path]:
    """Give an empty folder on a real disk, and remove it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=base_folder()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def base_folder() -> Path:
    """Return the folder for all files: `BENCH_DIR`, else `build/bench`, else one in /var/tmp; never in memory."""
    given = os.environ.get("BENCH_DIR")
    candidates = [Path(given)] if given else [ROOT / "build" / "bench", Path("/var/tmp/redrive-bench")]  # noqa: S108
    for folder in candidates:
        folder.mkdir(parents=True, exist_ok=True)
        if filesystem(folder) not in _IN_MEMORY:
            return folder
    raise CaseFailed(f"cannot measure durable writes in {candidates[0]}: it is in memory; set BENCH_DIR to a real disk")


def filesystem(folder: Path) -> str:
    """Return the type of the file system under *folder*, as the kernel names it."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError), Path("/proc/self/mountinfo").open() as mounts:
        for line in mounts:
            mount, _, kind = line.partition(" - ")
            if mount.split()[2] == wanted:
                return kind.split()[0]
    return "unknown"


# ---------------------------------------------------------------------- inside the new process


def main() -> None:
    """Run the case that the arguments name and write its answer."""
    name, folder, arguments = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)(folder, **arguments)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"redrive", "benchmarks"}:
            raise
        found = {ABSENT: error.name}
    (folder / "answer.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
