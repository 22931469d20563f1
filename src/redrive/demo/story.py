"""
The demo from its first line to its exit code.

Owns the folder in which everything happens, the order of the steps, and the commands to try
afterwards. The steps themselves are in `running`, `operating` and `receipt`.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from redrive.app import Redrive
from redrive.demo import operating, receipt, running
from redrive.demo.screen import Screen
from redrive.demo.worker import WorkerFailed
from redrive.engine.clock import SystemClock
from redrive.errors import RedriveError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.letter import Letter

_LIMIT = 240.0  # seconds; it takes a tenth of that, and must never hang
_CONFIG = """\
# The demo's settings. A lease is short here, so that a killed worker's letters are back soon.
url = {url}
lease_seconds = 2.5
sweep_seconds = 0.5
by = "you"
"""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How the demo came out, for `--json`."""

    ok: bool
    problems: list[str]
    books: dict[str, int]
    seconds: float
    url: str


def main(*, as_json: bool = False) -> int:
    """
    Run the demo; return 0 if everything came out as it must, 1 if not, 130 if it was interrupted.

    With *as_json* the story goes to the error stream and the outcome, as JSON, to the output.
    """
    screen = Screen(stderr=as_json)
    folder = Path(tempfile.mkdtemp(prefix="redrive-demo-"))
    try:
        return _exit_code(asyncio.run(_tell(screen, folder)), as_json=as_json)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        screen.say("interrupted; nothing is left behind")
        return 130
    except (RedriveError, WorkerFailed) as error:
        screen.trouble(str(error))
    except TimeoutError:
        screen.trouble(f"it took longer than {_LIMIT:.0f} s; what happened until then is in {folder}")
    return 1


def _exit_code(outcome: Outcome, *, as_json: bool) -> int:
    if as_json:
        sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")
    return 0 if outcome.ok else 1


async def _tell(screen: Screen, folder: Path) -> Outcome:
    clock = SystemClock()
    began = clock.monotonic()
    url, config = _set_up(folder)
    screen.title("redrive", "Retry what can heal, dead-letter what cannot, lose nothing.")
    async with asyncio.timeout(_LIMIT), Redrive(url, config=config) as app:
        await running.accept(app, screen)
        crash = await running.crash(app, screen, folder)
        met = crash | await running.run_and_kill(app, screen, folder)
        await operating.look(app, screen)
        example = await operating.understand(app, screen)
        await operating.fix(app, screen)
        await operating.replay(app, screen, folder)
        books, times = await running.books_of(app), receipt.handled(folder)
    receipt.show(screen, books, met, times)
    problems, seconds = receipt.problems(books, met, times), clock.monotonic() - began
    _close(screen, problems, seconds)
    _offer(screen, url, example)
    return Outcome(ok=not problems, problems=problems, books=dict(books), seconds=round(seconds, 1), url=url)


def _close(screen: Screen, problems: Sequence[str], seconds: float) -> None:
    """Say how it came out."""
    for problem in problems:
        screen.trouble(problem)
    if not problems:
        screen.done(f"nothing lost, nothing stuck, the books balance, in {seconds:.0f} s")


def _set_up(folder: Path) -> tuple[str, Path]:
    """Write the demo's settings; return the store's URL and the settings file."""
    url = f"sqlite:///{quote(str(folder / 'letters.db'))}"
    config = folder / "redrive.toml"
    config.write_text(_CONFIG.format(url=msgspec.json.encode(url).decode()), encoding="utf-8")
    return url, config


def _offer(screen: Screen, url: str, example: Letter) -> None:
    """Print what to try next on the file that stays."""
    command = _command()
    screen.step("Your turn", "The file stays; these read it.")
    for line in (
        f"export REDRIVE_URL={url}",
        f"{command} stats",
        f"{command} show {example.id}",
        f"{command} audit",
    ):
        screen.quote(line)


def _command() -> str:
    """Return what to type to run redrive as it was run now."""
    program = sys.argv[0]
    if Path(program).name != "redrive":
        return f"{shlex.quote(sys.executable)} -m redrive.cli"
    return "redrive" if shutil.which("redrive") == program else shlex.quote(program)
