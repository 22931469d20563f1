"""A Django project: `manage.py redrive_worker` runs its handlers, and plain `redrive worker` knows its models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.stores.conftest import server_url

pytest.importorskip("django")

ROOT = Path(__file__).parents[2]
FILES = {
    "manage.py": """
import os, sys
from django.core.management import execute_from_command_line
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site1.settings")
execute_from_command_line(sys.argv)
""",
    "site1/__init__.py": "",
    "site1/settings.py": """
SECRET_KEY = "for this test alone"
INSTALLED_APPS = ["django.contrib.contenttypes", "redrive.django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
REDRIVE_APP = "site1.letters:app"
""",
    "site1/letters.py": """
from django.contrib.contenttypes.models import ContentType  # raises AppRegistryNotReady without django.setup()
from pathlib import Path
from redrive import Redrive

app = Redrive("sqlite:///letters.db")

@app.handler("greet")
async def greet(payload: dict) -> None:
    Path("greeted").write_text(f"{payload['name']} {ContentType._meta.label}")
""",
}


@pytest.fixture
def project(tmp_path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text.lstrip())
    _run(tmp_path, "-m", "redrive.cli", "--url", "sqlite:///letters.db", "enqueue", "greet", '{"name": "ana"}')
    return tmp_path


def _run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REDRIVE_", "DJANGO_"))}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env={**kept, "PYTHONPATH": str(ROOT / "src"), **variables},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["one process", "two processes"])
def test_manage_py_runs_the_projects_handlers(project, processes):
    ended = _run(project, "manage.py", "redrive_worker", "--until-idle", *processes)
    assert ended.returncode == 0, ended.stderr
    assert (project / "greeted").read_text() == "ana contenttypes.ContentType"


@pytest.mark.slow
def test_a_worker_that_is_told_the_settings_module_knows_the_projects_models(project):
    command = ("-m", "redrive.cli", "worker", "site1.letters:app", "--until-idle")
    ended = _run(project, *command, DJANGO_SETTINGS_MODULE="site1.settings")
    assert ended.returncode == 0, ended.stderr
    assert (project / "greeted").exists()


BROKEN = """
from django.db import connection
from redrive import Letter, Redrive

app = Redrive("sqlite:///letters.db", concurrency=1)  # one thread runs both tries

@app.handler("greet", policy="constant:delay=0,max_attempts=2")
def greet(letter: Letter) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1" if letter.attempts > 1 else "SELECT pg_terminate_backend(pg_backend_pid())")
"""


@pytest.mark.slow
def test_a_connection_that_broke_fails_one_try_and_not_every_letter_after_it(project):
    server = urlsplit(server_url())
    database = {"ENGINE": "django.db.backends.postgresql", "HOST": server.hostname, "PORT": server.port,
                "USER": server.username, "NAME": server.path[1:], "CONN_MAX_AGE": None}  # fmt: skip
    settings = project / "site1" / "settings.py"
    settings.write_text(settings.read_text() + f"DATABASES = {{'default': {database!r}}}\n")
    (project / "site1" / "letters.py").write_text(BROKEN)
    ended = _run(project, "manage.py", "redrive_worker", "--until-idle")
    assert ended.returncode == 0, ended.stderr
    shown = json.loads(_run(project, "-m", "redrive.cli", "--url", "sqlite:///letters.db", "ls", "--json").stdout)
    assert [(letter["status"], letter["attempts"]) for letter in shown["letters"]] == [("delivered", 2)]


def test_a_project_that_names_no_application_is_told_how(project):
    settings = project / "site1" / "settings.py"
    settings.write_text(settings.read_text().replace("REDRIVE_APP", "OTHER"))
    ended = _run(project, "manage.py", "redrive_worker")
    assert ended.returncode == 1
    assert "set REDRIVE_APP in the settings" in ended.stderr
