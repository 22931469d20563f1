"""The wheel, installed with one extra in an environment of its own: the inbox runs, and the pipeline's example."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.servers.kafka import Broker
from tests.servers.ports import free_port
from tests.sources.kafka.needed import needed

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "pipeline"
PORTS = ("50951", "50952", "50953")  # that the example's modules use

pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build it once for all environments."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (built,) = folder.glob("redrive-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return what installs one extra, and only that: what another extra brings must not hide what this one lacks."""

    def install(extra: str) -> Path:
        fresh = tmp_path_factory.mktemp(extra)
        run(sys.executable, "-m", "venv", "--without-pip", fresh)
        python = fresh / "bin" / "python"
        quick = ("--quiet", "--no-compile")  # most of it is never imported
        run(sys.executable, "-m", "pip", "--python", python, "install", *quick, f"{wheel}[{extra}]")
        return fresh / "bin"

    return install


@pytest.fixture(scope="module")
def webhook(installed):
    return installed("webhook")


def test_the_installed_command_receives_a_webhook(webhook, tmp_path):
    words = ["--url", "sqlite:///inbox.db", "inbox", "run", "--source", "github", "--insecure"]
    words += ["--forward", "http://127.0.0.1:9", "--address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0"]
    with subprocess.Popen([webhook / "redrive", *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as inbox:
        try:
            public, admin = (word.rstrip(";") for word in inbox.stdout.readline().split() if word.startswith("http"))
            address = public.replace("{source}", "github")
            assert httpx.post(address, content=b"{}", timeout=20).status_code == 202
            assert httpx.get(f"{admin}/health", timeout=20).json() == {"status": "ok"}
        finally:
            inbox.terminate()
        assert inbox.wait(timeout=30) == 0


def test_the_wheel_holds_the_migrations_and_says_that_it_is_typed(webhook):
    code = "import redrive, pathlib as p; f = p.Path(redrive.__file__).parent; "
    code += "assert (f / 'py.typed').exists(); assert list(f.rglob('*.sql'))"
    run(webhook / "python", "-I", "-c", code)


def test_the_example_of_the_pipeline_runs_with_the_installed_extra_alone(installed, tmp_path):
    chosen = {port: str(free_port()) for port in PORTS}  # another test may run the same example now
    for file in EXAMPLE.glob("*.*"):
        text = file.read_text("utf-8")
        for port, own in chosen.items():
            text = text.replace(port, own)
        (tmp_path / file.name).write_text(text, "utf-8")
    python = installed("pipeline") / "python"
    with needed(), Broker() as broker:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "REDRIVE"))}
        told = run(python, "story.py", cwd=tmp_path, env=clean | {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap})
    assert told.splitlines() == [
        "1 document is done, 2 wait in dlq.example.summarise: summarise is down",
        "3 documents are done",
    ]
