"""
PgBouncer in transaction mode in front of a PostgreSQL server, from Debian's package.

    with running(server) as pooler: asyncpg.connect(pooler.url, statement_cache_size=0)

Owns installing the package where that can be done (root on Debian), a folder and a port of its
own, and the end of the process: it is a direct child, is reaped, and dies with this process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers import fetching
from tests.servers.ports import free_port
from tests.servers.postgres import Missing, Postgres, _die_with_parent, _unprivileged
from tests.servers.postgres import shared as shared_server

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "pgbouncer"
STARTING = 180.0  # seconds, on a machine that does much else
_CONFIG = """
[databases]
* = host=127.0.0.1 port={server} user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
server_check_delay = 0
"""


@dataclass
class Pooler:
    """A pooler that runs; few connections to the server, shared by many, a transaction at a time."""

    process: subprocess.Popen[bytes]
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"


def program() -> str:
    """Return the program; it is installed if it is missing and we may."""
    if found := _installed():
        return found
    with fetching.alone():
        if not _installed() and os.geteuid() == 0 and shutil.which("apt-get"):
            _install()
    if found := _installed():
        return found
    raise Missing(f"there is no PgBouncer here: sudo apt-get install {PACKAGE}")


def _installed() -> str | None:
    return shutil.which(PACKAGE, path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def _install() -> None:
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    patient = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
    subprocess.run([*patient, "update"], check=False, capture_output=True, env=env)
    install = [*patient, "install", "-y", "--no-install-recommends", PACKAGE]
    subprocess.run(install, check=False, capture_output=True, env=env)


@contextlib.contextmanager
def running(server: Postgres) -> Iterator[Pooler]:
    """Run a pooler in front of *server* for the length of a block."""
    command, run, port = program(), _unprivileged(), free_port()
    home = Path(tempfile.mkdtemp(prefix="redrive-pgbouncer-"))
    config = home / "pgbouncer.ini"
    config.write_text(_CONFIG.format(server=server.port, port=port))
    for path in (home, config):
        if run:
            os.chown(path, run["user"], run["group"])
    with (home / "log").open("ab") as log:
        process = subprocess.Popen(
            [command, config],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - prctl alone, after the change of user
            **run,
        )
    try:
        yield _ready(Pooler(process, home, port))
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(home, ignore_errors=True)


@functools.cache
def shared(version: int = 18) -> Pooler:
    """Return the one pooler of this process in front of the shared server of *version*; gone at exit."""
    stack = contextlib.ExitStack()
    pooler = stack.enter_context(running(shared_server(version)))
    atexit.register(stack.close)
    return pooler


def _ready(pooler: Pooler) -> Pooler:
    end = time.monotonic() + STARTING
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", pooler.port), 1):
            return pooler
        if pooler.process.poll() is not None or time.monotonic() > end:
            raise Missing(f"PgBouncer did not start: {(pooler.folder / 'log').read_text(errors='replace')[-2_000:]}")
        time.sleep(0.03)
