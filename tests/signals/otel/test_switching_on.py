"""When spans are made: by themselves where the application has a tracer, or as the setting says; by commands too."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from redrive import Redrive

if TYPE_CHECKING:
    from pathlib import Path

SHOP = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from redrive import Redrive

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=lambda span: span.name + chr(10))))
trace.set_tracer_provider(provider)

app = Redrive("sqlite:///shop.db")

@app.handler("a", queue="orders")
def handle(letter) -> None:
    pass

if __name__ == "__main__":
    app.sync.enqueue("a", {})
"""


def run(folder: Path, *command: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=os.environ | env, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize(("setting", "spans"), [(None, True), ("true", True), ("false", False)])
def test_an_application_with_a_tracer_is_traced_unless_it_is_told_not_to_be(tmp_path, setting, spans):
    (tmp_path / "shop.py").write_text(SHOP)
    env = {} if setting is None else {"REDRIVE_TRACING": setting}
    sent = run(tmp_path, "shop.py", **env)
    worked = run(tmp_path, "-m", "redrive.cli", "worker", "shop:app", "--until-idle", **env)
    assert ("enqueue orders" in sent, "handle orders" in worked) == (spans, spans)


def test_a_letter_from_the_command_line_has_a_span_if_its_process_has_a_tracer(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    command = "import sys, shop; from redrive.cli.root import main; sys.argv[1:] = {}; main()"
    words = ["--url", "sqlite:///shop.db", "enqueue", "a", "{}", "--queue", "orders"]
    assert "enqueue orders" in run(tmp_path, "-c", command.format(words))
    assert "enqueue orders" not in run(tmp_path, "-c", command.format(words), REDRIVE_TRACING="false")


def test_a_process_that_only_has_the_api_is_not_traced_and_does_not_import_it(tmp_path):
    script = (
        "import sys; from redrive import Redrive; app = Redrive('memory://'); app.sync.enqueue('a', {}); "
        "print(app.tracing, any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert run(tmp_path, "-c", script).split() == ["None", "False"]
    assert run(tmp_path, "-c", f"import opentelemetry.trace; {script}").split() == ["None", "True"]


async def test_a_tracer_is_wanted_and_there_is_none_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("opentelemetry", "redrive.signals.otel"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(Exception, match=r"pip install 'redrive\[otel\]'"):
        await Redrive("memory://", tracing=True).open()
