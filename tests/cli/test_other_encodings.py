"""Arguments in another encoding than the system's are kept, and never end in a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from redrive import cli

ENGLISH = {**os.environ, "PYTHONUTF8": "1"}
CAFE = b"caf\xe9"  # in Latin-1


def run(url: str, *arguments: bytes | str, code: int = 0) -> str:
    command = [sys.executable, "-m", "redrive.cli", "--url", url, *arguments]
    done = subprocess.run(command, env=ENGLISH, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def in_this_process(url: str, *arguments: bytes | str, code: int = 0) -> str:
    """Run a command without a process of its own: Python gives it bytes that are no UTF-8 as `os.fsdecode` does."""
    done = CliRunner().invoke(cli.app, ["--url", url, *map(os.fsdecode, arguments)])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path / 'redrive.db'}"


def test_a_letter_is_kept_with_what_was_typed(url):
    said = (b"--key", CAFE, b"--meta", b"place=" + CAFE, b"--tenant", CAFE, b"--idempotency-key", CAFE)
    letter = run(url, "enqueue", CAFE, "{}", "--queue", CAFE, *said).strip()
    shown = run(url, "show", letter)
    assert shown.count("caf\\xe9") >= 5


def test_a_payload_is_kept_byte_by_byte(url):
    letter = run(url, "enqueue", "kind", CAFE, "--content-type", "application/octet-stream").strip()
    assert CAFE.hex() in run(url, "show", letter).replace(" ", "")


def test_an_act_is_carried_out_whatever_its_reason(url):
    letter = in_this_process(url, "enqueue", "kind", "{}").strip()
    in_this_process(url, "queues", "pause", CAFE, "--reason", CAFE, "--by", CAFE)
    in_this_process(url, "cancel", letter, "--reason", CAFE, "--by", CAFE)
    assert in_this_process(url, "audit").count("caf\\xe9") >= 4


@pytest.mark.parametrize(
    "command",
    [
        ["show", CAFE],
        ["explain", CAFE],
        ["replay", CAFE],
        ["replay", "--resume", CAFE],
        ["ls", "--cursor", CAFE],
    ],
)
def test_what_names_nothing_is_refused_in_a_sentence(url, command):
    in_this_process(url, "enqueue", "kind", "{}")
    assert "redrive: " in in_this_process(url, *command, code=1)


@pytest.mark.parametrize("query", [b"key:%s", b'key:"%s"', b'kind:"k"* key:"%s" -key:"x"', b"-key:caf key:%s"])
def test_a_query_finds_what_was_typed_in_the_same_encoding(url, query):
    letter = in_this_process(url, "enqueue", "kind", "{}", "--key", CAFE).strip()
    in_this_process(url, "enqueue", "kind", "{}", "--key", "caf")
    found = json.loads(in_this_process(url, "ls", "--json", "-q", query % CAFE))["letters"]
    assert [each["id"] for each in found] == [letter]
