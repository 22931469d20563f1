"""Every example does what its first lines say: each command that they show is run, with real servers."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from importlib.util import find_spec

import pytest
from tests.examples.reader import EXAMPLES, first_lines, shown
from tests.servers.ports import free_port

DJANGO, FASTAPI, KAFKA = "django_outbox/manage.py", "fastapi_service/web.py", "kafka_orders/shop.py"
PIPELINE = "pipeline/story.py"
SQLALCHEMY, TESTS = "sqlalchemy_outbox.py", "tests_without_sleeping/test_mailing.py"
INBOX = "webhook_inbox.py"
ENTRIES = ["first_dead_letter.py", "workflow.py", INBOX, DJANGO, FASTAPI, KAFKA, PIPELINE, SQLALCHEMY, TESTS]


def test_every_example_is_in_the_list_and_says_what_it_shows_and_how_to_run_it():
    listed = re.findall(r"\]\((.*?)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    linked = {entry.split("/")[0] for entry in listed}
    assert linked == {path.name for path in EXAMPLES.iterdir() if path.name not in {"README.md", "__pycache__"}}
    for entry in ENTRIES:
        assert len(first_lines(entry)) > 80, entry
        assert shown(entry) or f"python {entry}" in first_lines(entry)


def test_the_first_dead_letter(reader):
    printed = reader.run("python first_dead_letter.py")
    assert "1 failed: the label printer is off (dependency)" in printed
    assert "printed the label of parcel 4711" in printed


def test_a_workflow_that_heals(reader):
    printed = reader.run("python workflow.py")
    assert "failed: llamaindex is away; kept with policy exponential" in printed
    assert "retried: success is True, result {'status': 'completed', 'type': 'code_sweep', 'repos': 1}" in printed


@pytest.mark.skipif(not find_spec("httpx2"), reason="no redrive[webhook]")
def test_a_webhook_that_is_fixed_and_replayed(reader):
    printed = reader.run("python webhook_inbox.py")
    assert "first: 202\nfirst: 200\nforged: 401\nsecond: 202\n" in printed
    assert "dead: github.push, there is no target for refs/heads/beta" in printed
    assert printed.index("refs/heads/beta goes to staging") < printed.index("dead letters left: 0")


@pytest.mark.slow
@pytest.mark.skipif(not (find_spec("fastapi") and find_spec("uvicorn") and find_spec("httpx")), reason="no FastAPI")
def test_a_fastapi_service_and_its_worker(reader):
    import httpx  # noqa: PLC0415 - only where it is installed

    reader.enter("fastapi_service")
    assert "1 passed" in reader.run("pytest -q -p no:cacheprovider")
    assert list(reader.folder.glob("*.db")) == []
    serve, work, order, refund, look = shown(FASTAPI)
    port = free_port()
    with reader.started(f"{serve} --port {port}", stderr=subprocess.PIPE) as server:
        assert any("Uvicorn running" in line for line in server.stderr)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            [placed, again] = [post(client, order), post(client, order)]
            assert (placed["duplicate"], again["duplicate"]) == (False, True)
            assert placed["letter"] == again["letter"]
            asked = post(client, refund)
            assert client.get(f"/letters/{placed['letter']}").json()["status"] == "pending"

            printed = reader.run(f"{work} --until-idle")
            assert printed.count("order 17 goes to Main Street 1") == 1
            assert printed.count("order 17 gets 250 cents back") == 1  # of a thread: their lines may mix
            assert client.get(f"/letters/{asked['letter']}").json()["status"] == "delivered"
            assert client.get("/letters/00000000-0000-7000-8000-000000000000").status_code == 404
        server.send_signal(signal.SIGTERM)
        server.communicate()
    assert server.returncode in {0, -signal.SIGTERM}
    letters = json.loads(reader.run(f"{look} --json"))["letters"]
    assert [letter["status"] for letter in letters] == ["delivered", "delivered"]


def post(client, line):
    """Post what a `curl` of the example posts."""
    path = re.search(r"localhost:8000(\S+)", line)[1]
    answer = client.post(path, json=json.loads(re.search(r"-d '(.*)'", line)[1]))
    assert answer.status_code == 202, answer.text
    return answer.json()


@pytest.mark.slow
def test_an_outbox_in_django(reader, database):
    pytest.importorskip("django")
    reader.enter("django_outbox")
    reader.env["REDRIVE_URL"] = database
    tables, schema, place, unpaid, work, look = shown(DJANGO)
    reader.run(tables)
    reader.run(schema.replace("postgresql://redrive@localhost/redrive", database))
    assert "order 17 is placed" in reader.run(place)
    assert "neither the order nor its letter is kept" in reader.run(unpaid, code=1)
    assert reader.run(look).splitlines() == ["orders [17]", "bookings []"]
    reader.run(work)
    assert reader.run(look).splitlines() == ["orders [17]", "bookings [17]"]


@pytest.mark.slow
def test_an_outbox_in_sqlalchemy(reader, database):
    pytest.importorskip("sqlalchemy")
    reader.env["REDRIVE_URL"] = database
    [command] = shown(SQLALCHEMY)
    assert reader.run(command).splitlines() == [
        "rolled back: order 18 is not paid",
        '{"order":17} is delivered after 2 tries',
        "orders [17]",
        "bookings [17]",
    ]


@pytest.mark.slow
def test_a_kafka_consumer_its_dead_letters_and_their_replay(reader, broker):
    reader.enter("kafka_orders")
    reader.env["KAFKA_BOOTSTRAP_SERVERS"] = broker.bootstrap
    fill, consume, stats, replay, fixed = shown(KAFKA)
    reader.run(fill)
    reader.run_until(consume, {"order 17 goes to 1 Main Street", "order 20 goes to 2 Side Road"})
    assert re.search(r"2 +retries_exhausted +ValueError", reader.run(stats))
    assert "2 replayed" in reader.run(replay)
    reader.run_until(fixed, {"order 18 goes to the counter", "order 19 goes to the counter"})


@pytest.mark.slow
def test_a_pipeline_with_a_module_that_is_down_and_a_replay(reader, broker):
    pytest.importorskip("grpc")
    reader.enter("pipeline")
    reader.env["KAFKA_BOOTSTRAP_SERVERS"] = broker.bootstrap
    [command] = shown(PIPELINE)
    assert reader.run(command).splitlines() == [
        "1 document is done, 2 wait in dlq.example.summarise: summarise is down",
        "3 documents are done",
    ]


@pytest.mark.slow
def test_tests_that_do_not_sleep(reader):
    reader.enter("tests_without_sleeping")
    [command] = shown(TESTS)
    assert "4 passed" in reader.run(f"{command} -q -p no:cacheprovider")
    assert list(reader.folder.glob("*.db")) == []
