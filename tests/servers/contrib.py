"""
PostgreSQL 18 with the extensions that come with it (pg_trgm …), which the wheel's build has not.

Owns the download: the Maven artifact of `embedded-postgres-binaries`, once, into a cache outside of
the project. The server itself is run by `postgres`.
"""

from __future__ import annotations

import io
import platform
import shutil
import tarfile
import zipfile
from typing import TYPE_CHECKING

from tests.servers import fetching
from tests.servers.postgres import Missing

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "18.4.0"
_CPU = {"x86_64": "amd64", "aarch64": "arm64v8"}.get(platform.machine(), platform.machine())
_ARTIFACT = f"io.zonky.test.postgres:embedded-postgres-binaries-linux-{_CPU}:{VERSION}"
CACHE = fetching.CACHE / f"postgres-{VERSION}"


def binaries() -> Path:
    """Return the folder of the programs; the first time they are fetched."""
    if not _is_complete():
        with fetching.alone():
            if not _is_complete():
                _fetch()
    return CACHE / "bin"


def _is_complete() -> bool:
    return (CACHE / "complete").exists()


def _fetch() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing("PostgreSQL with extensions is not in the cache and Maven is not here; apt-get install maven")
    CACHE.mkdir(parents=True, exist_ok=True)
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={CACHE}"]
    done = fetching.run(command, CACHE)
    jars = list(CACHE.glob("*.jar"))
    if done.returncode or not jars:
        raise Missing(f"Maven could not fetch {_ARTIFACT}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    with zipfile.ZipFile(jars[0]) as jar:
        name = next(name for name in jar.namelist() if name.endswith(".txz"))
        with tarfile.open(fileobj=io.BytesIO(jar.read(name))) as archive:
            archive.extractall(CACHE, filter="data")
    jars[0].unlink()
    (CACHE / "complete").touch()
