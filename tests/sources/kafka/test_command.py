"""`redrive kafka consume`: a worker or a consumer by its name, stopped by a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.sources.kafka.stage import LIMIT, until
from typer.testing import CliRunner

from redrive.cli.root import app

ROOT = Path(__file__).parents[3]
SHOP = """
import os
from redrive.sources.kafka import KafkaConfig, ParallelConsumer

async def ship(record):
    with open("shipped", "ab") as book:
        book.write(record.value + b"\\n")

consumer = ParallelConsumer([os.environ["TOPIC"]], ship, group=os.environ["GROUP"],
                            kafka=KafkaConfig(bootstrap_servers=os.environ["SERVERS"], commit_interval_ms=50))
"""


async def run(stage, folder, *words, **variables):
    stage.create()
    stage.produce([{"value": b"%d" % n} for n in range(10)])
    (folder / "shop.py").write_text(SHOP)
    env = {"PYTHONPATH": str(ROOT / "src"), "TOPIC": stage.topic, "GROUP": stage.group, "SERVERS": stage.bootstrap}
    command = [sys.executable, "-m", "redrive.cli", "kafka", "consume", *words]
    env |= os.environ | env | variables
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
        try:
            await until(lambda: stage.committed() == 10)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
    assert len((folder / "shipped").read_bytes().splitlines()) == 10


async def test_a_consumer_is_run_by_its_name_and_stops_at_a_signal(stage, tmp_path):
    await run(stage, tmp_path, "shop:consumer")


async def test_a_worker_is_run_with_the_environments_configuration(stage, tmp_path):
    words = ["shop:ship", "--topic", stage.topic, "--group", stage.group]
    await run(stage, tmp_path, *words, KAFKA_BOOTSTRAP_SERVERS=stage.bootstrap, EXECUTION_MAX_RETRIES="2")


async def test_the_log_on_standard_error_says_which_try_failed_and_why(stage, tmp_path):
    stage.create()
    stage.produce([{"value": b"soup"}])
    (tmp_path / "shop.py").write_text("async def ship(record): raise ValueError('no such\\norder')")
    words = ["shop:ship", "--topic", stage.topic, "--group", stage.group]
    command = [sys.executable, "-m", "redrive.cli", "kafka", "consume", *words]
    env = {
        "PYTHONPATH": str(ROOT / "src"), "KAFKA_BOOTSTRAP_SERVERS": stage.bootstrap, "REDRIVE_LOG_FORMAT": "json",
        "EXECUTION_MAX_RETRIES": "2", "EXECUTION_RETRY_BACKOFF_MS": "1",
    }  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=os.environ | env, stdout=subprocess.PIPE, stderr=log)  # noqa: ASYNC220
    with process:
        try:
            await until(lambda: stage.committed() == 1)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
    [info, warning] = [line for line in lines if "ValueError" in line["event"] or "no such" in line["event"]]
    assert (info["level"], "failed at attempt 1 of 2" in info["event"]) == ("info", True)
    assert (warning["level"], "failed and is given up after attempt 2" in warning["event"]) == ("warning", True)
    assert all(line["timestamp"].endswith("Z") for line in (info, warning))


async def test_several_processes_are_members_of_one_group_and_dead_ones_are_replaced(stage, tmp_path):
    stage.create(partitions=2)
    shop = SHOP.replace("record.value", 'b"%d" % os.getpid()').replace(
        "commit_interval_ms", "session_timeout_ms=3_000, commit_interval_ms"
    )
    (tmp_path / "shop.py").write_text(shop)
    env = {"PYTHONPATH": str(ROOT / "src"), "TOPIC": stage.topic, "GROUP": stage.group, "SERVERS": stage.bootstrap}
    command = [sys.executable, "-m", "redrive.cli", "kafka", "consume", "shop:consumer", "--processes", "2"]
    book = tmp_path / "shipped"

    def handled_by():
        stage.produce([{"value": b"x", "partition": n % 2} for n in range(2)])
        return {int(line) for line in book.read_bytes().split()} if book.exists() else set()

    with subprocess.Popen(command, cwd=tmp_path, env=os.environ | env, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
        try:
            await until(lambda: len(handled_by()) == 2)
            os.kill(min(handled_by()), signal.SIGKILL)
            await until(lambda: len(handled_by()) == 3)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0


SERVED = "from redrive.sources.kafka import ParallelConsumer\nasync def ship(record): ...\n"
SERVED += "from redrive.sources.kafka import KafkaConfig\n"
SERVED += "consumer = ParallelConsumer(['orders'], ship, group='shipping', kafka=KafkaConfig(group_instance_id='a'))\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["served:consumer", "--servers", "elsewhere:9092", "--group", "g"], "has its own --group, --servers"),
        (["served:consumer", "--ordering", "partition"], "has its own --ordering"),
        (["served:consumer", "--processes", "2"], "kafka.group_instance_id names one member"),
        (["served:ship", "--group", "g"], "needs --topic and --group"),
        (["served:ship", "--topic", "orders"], "needs --topic and --group"),
    ],
)
def test_options_that_would_be_ignored_or_are_lacking_are_refused(tmp_path, monkeypatch, words, complaint):
    (tmp_path / "served.py").write_text(SERVED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "served", raising=False)
    done = CliRunner().invoke(app, ["kafka", "consume", *words])
    assert (done.exit_code, complaint in " ".join(done.output.split())) == (2, True), done.output


@pytest.mark.parametrize("words", [["ls", "--partition"], ["ls", "--from-offset"], ["peek", "0", "--partition"]])
def test_places_that_no_topic_has_are_refused_instead_of_found_empty(words):
    verb, *rest = words
    done = CliRunner().invoke(app, ["kafka", "dlq", verb, "orders.dlq", *rest, "-4"])
    assert (done.exit_code, words[-1] in done.output) == (2, True), done.output


def peek(stage, *words):
    done = CliRunner().invoke(app, ["kafka", "dlq", "peek", stage.dlq, *words, "--servers", stage.bootstrap])
    return done.exit_code, json.loads(done.stdout)["place"] if done.exit_code == 0 else " ".join(done.output.split())


def test_the_newest_dead_letter_is_shown_where_no_offset_is_given(stage):
    stage.create(2, topic=stage.dlq)
    now = int(time.time() * 1000)
    stage.produce([{"value": b"x", "partition": 1, "timestamp": now - 1000 + n} for n in range(70)], topic=stage.dlq)
    code, said = peek(stage, "--partition", "0")
    assert (code, f"{stage.dlq}[0] has no dead letters" in said) == (1, True), said
    stage.produce([{"value": b"x", "partition": 0, "timestamp": now + n} for n in range(3)], topic=stage.dlq)
    assert peek(stage) == (0, f"{stage.dlq}[0]@2")
    assert peek(stage, "--partition", "1") == (0, f"{stage.dlq}[1]@69")
    assert peek(stage, "1") == (0, f"{stage.dlq}[0]@1")


def test_the_newest_dead_letter_is_found_before_what_ends_transactions(stage):
    stage.create(topic=stage.dlq)
    producer = Producer({"bootstrap.servers": stage.bootstrap, "transactional.id": stage.topic})
    producer.init_transactions(LIMIT)
    for n in range(60):
        producer.begin_transaction()
        producer.produce(stage.dlq, b"%d" % n)
        # librdkafka aborts without waiting for the broker to know the partition. The first abort would then meet the
        # committed transaction before it, which the broker refuses as INVALID_TXN_STATE, and that is fatal.
        assert producer.flush(LIMIT) == 0
        (producer.commit_transaction if n < 3 else producer.abort_transaction)(LIMIT)
    assert peek(stage) == (0, f"{stage.dlq}[0]@4")  # each is followed by its end


def test_settings_that_make_no_sense_are_said_in_sentences(tmp_path):
    (tmp_path / "shop.py").write_text("async def ship(record): ...")
    command = [sys.executable, "-m", "redrive.cli", "kafka", "consume", "shop:ship", "--topic", "a", "--group", "g"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "EXECUTION_MAX_RETRIES": "0", "KAFKA_DLQ_ENABLED": "maybe"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "execution.max_retries is 0" in done.stderr
    assert "kafka.dlq_enabled is 'maybe'" in done.stderr
