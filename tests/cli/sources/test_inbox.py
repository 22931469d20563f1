"""`redrive inbox`: run it without code, send samples to it, look at its sources, find what never arrived."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace

import pytest

from redrive.cli.inbox.client import request
from redrive.cli.inbox.run import loop_factory

SECRET = "a secret of the command line"  # noqa: S105 - the test's own
TOML = """
[inbox]
max_attempts = 3
[inbox.sources.github]
secrets = ["env:HOOK_SECRET"]
events = ["p*"]
[inbox.sources.orders]
preset = "hmac"
header = "X-Sig"
insecure = true
sequence_field = "number"
"""


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    (tmp_path / "redrive.toml").write_text(TOML)


@pytest.fixture
def service():
    """A service that takes forwards."""
    got = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self):  # the library's name for it
            got.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_given):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/hooks", got
    server.shutdown()
    server.server_close()


class Running:
    """`redrive inbox run` in a process of its own."""

    def __init__(self, url, *words):
        command = [sys.executable, "-m", "redrive.cli", "--url", url, "inbox", "run", *words]
        command += ["--address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0", "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"(http://\S+)/hooks/\{source\}; admin on http://(\S+)", line)
        assert found, line + self.process.stderr.read()
        self.public, self.admin = found[1], found[2]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def run(redrive):
    started = []

    def start(*words):
        started.append(Running(redrive.url, *words))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


@pytest.mark.slow
def test_without_code_events_are_received_checked_and_forwarded(redrive, run, service, monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    url, got = service
    inbox = run("--source", "github", "--secret", "env:HOOK_SECRET", "--forward", url)
    reference = ("--source", "github", "--secret", "env:HOOK_SECRET", "--to", f"{inbox.public}/hooks")
    (sent,) = redrive.json("inbox", "send", *reference, "--id", "evt-1")["sent"]
    assert sent["status"] == 202
    assert redrive.json("inbox", "send", *reference, "--id", "evt-1")["sent"][0]["status"] == 200
    monkeypatch.setenv("HOOK_SECRET", "another secret of the sender")
    assert redrive.json("inbox", "send", *reference, code=1)["sent"][0]["status"] == 401
    redrive.until(lambda books: books["delivered"] == 1)
    code, out, err = inbox.stop()
    assert (code, got) == (0, [b'{"zen":"Keep it logically awesome."}'])
    assert json.loads(out)["results"] == {"github.accepted": 1, "github.duplicate": 1, "github.refused": 1}
    assert SECRET not in out + err
    assert redrive.json("ls", "-q", "origin:webhook:github")["letters"][0]["status"] == "delivered"


@pytest.mark.slow
def test_sources_shows_configuration_deliveries_and_refusals(redrive, run, settings):
    inbox = run("--workers", "elsewhere")
    redrive("inbox", "send", "--to", f"{inbox.public}/hooks")
    request("POST", f"{inbox.public}/hooks/github", b"{}")
    told = redrive.json("inbox", "sources", "--admin-address", inbox.admin)
    github, orders = told["sources"]
    assert (told["running"], github["letters"], github["refusals"]) == (True, 1, "1 missing")
    assert (github["events"], github["signed"], orders["signed"], orders["letters"]) == (["p*"], True, False, 1)
    assert github["last"] is not None
    assert inbox.stop()[0] == 0
    assert redrive.json("inbox", "sources", "--admin-address", inbox.admin)["running"] is False


@pytest.mark.slow
def test_gaps_lists_holes_in_sequence_numbers_and_ids_that_never_arrived(redrive, run, settings, tmp_path):
    inbox = run("--workers", "elsewhere")
    for number in (1, 2, 5, 6, 9):
        body = json.dumps({"number": number}).encode()
        headers = [(b"Idempotency-Key", b"o-%d" % number)]
        assert request("POST", f"{inbox.public}/hooks/orders", body, headers)[0] == 202
    assert inbox.stop()[0] == 0
    (tmp_path / "ids").write_text("o-1\no-3\n\no-9\n")
    told = redrive.json("inbox", "gaps", "orders", "--ids", str(tmp_path / "ids"))
    assert (told["gaps"], told["missing"]) == ([[3, 4], [7, 8]], ["o-3"])
    assert "2 gaps in 5 numbers; 0 of 0 ids never arrived" in redrive("inbox", "gaps", "orders").stdout


def test_check_looks_at_the_inbox(redrive, settings, monkeypatch, tmp_path):
    assert redrive.json("check")["ok"] is True
    monkeypatch.setenv("HOOK_SECRET", "short")
    monkeypatch.setenv("MAX_ATTEMPTS", "many")
    problems = redrive.json("check", code=1)["problems"]
    assert len(problems) == 2
    assert "MAX_ATTEMPTS is 'many'" in problems[0]
    assert "the secret env:HOOK_SECRET of source 'github' is 5 bytes long" in problems[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run",), "there is no source"),
        (("run", "--secret", "env:X"), "--secret says something about one source"),
        (("run", "--source", "github"), "it has no secret"),
        (("run", "--source", "gitlab", "--insecure"), "must be one of standard, stripe"),
        (("run", "--source", "githb", "--insecure"), "did you mean github?"),
        (("run", "--source", "github", "--secret", "hunter2hunter2hunter2"), "is not a reference"),
        (("run", "--source", "github", "--insecure", "--address", "nowhere"), "cannot listen on 'nowhere'"),
        (("run", "--source", "github", "--insecure", "--workers", "there"), "must be 'here' or 'elsewhere'"),
        (("send", "--source", "github", "--to", "http://127.0.0.1:9/hooks"), "cannot reach"),
        (("gaps", "github", "--ids", "absent.txt"), "cannot read ids from"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(redrive, words, said):
    done = redrive("inbox", *words, code=1)
    assert said in done.stderr
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_source_of_the_settings_is_named_alone(redrive, tmp_path, monkeypatch):
    (tmp_path / "redrive.toml").write_text("[inbox.sources.shop]\npreset = 'shopify'\ninsecure = true\n")
    monkeypatch.chdir(tmp_path)
    there = redrive("inbox", "run", "--source", "shop", "--address", "nowhere", code=1)
    assert "cannot listen on 'nowhere'" in there.stderr
    absent = redrive("inbox", "run", "--source", "shp", "--insecure", code=1)
    assert "[inbox.sources] in redrive.toml (shop); did you mean shop?" in " ".join(absent.stderr.split())


def test_without_a_running_inbox_sources_says_how_to_name_its_address(redrive, tmp_path, monkeypatch):
    (tmp_path / "redrive.toml").write_text("[inbox.sources.github]\ninsecure = true\n")
    monkeypatch.chdir(tmp_path)
    assert "name another by --admin-address" in redrive("inbox", "sources", "--admin-address", "127.0.0.1:9").stdout


def test_help_of_all_commands_imports_no_server(tmp_path):
    code = "import sys; import redrive.cli.root; print([n for n in ('uvicorn', 'httpcore2') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("made", ["a loop of uvloop", None])
def test_it_runs_on_uvloop_if_that_is_installed(monkeypatch, made):
    monkeypatch.setitem(sys.modules, "uvloop", made and SimpleNamespace(new_event_loop=made))
    assert loop_factory() == made
