"""
A graph of three modules, one of which is down: its documents wait in its DLQ topic, and a replay brings them home.

`summarise` does not run at first. Each long document is tried twice there and goes to `dlq.example.summarise`; the
short one skips that node and reaches the end. Then `summarise` is started, and a replay sends the dead letters to its
input topic. A replay needs a store, which keeps the audit log: here a SQLite file. Needs Kafka (`docker compose up
--wait` starts one) and `pip install 'redrive[pipeline]'`.
In this folder:

    $ python story.py
"""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

SERVERS = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
REDRIVE = [sys.executable, "-m", "redrive.cli"]
DOCUMENTS = {"long.txt": "all work and no play", "longer.txt": "it was a dark and stormy night", "short.txt": "hello"}


def main():
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        for name in ("parse", "index"):
            stack.enter_context(running([sys.executable, "modules.py", name]))
        stack.enter_context(running([*REDRIVE, "pipeline", "run", "graph.yaml"]))
        for name, text in DOCUMENTS.items():
            Path(folder, name).write_text(text)
        redrive("pipeline", "send", "graph.yaml", *(str(Path(folder, name)) for name in DOCUMENTS))

        wait_for("dlq.example.summarise", 2)
        print(f"{wait_for('done.example', 1)} document is done, 2 wait in dlq.example.summarise: summarise is down")

        stack.enter_context(running([sys.executable, "modules.py", "summarise"]))
        because = ["--reason", "summarise runs again"]
        store = ["--url", f"sqlite:///{folder}/audit.db"]
        redrive(*store, "migrate")
        redrive(*store, "pipeline", "replay", "summarise", "--graph", "graph.yaml", "--all", "--yes", *because)
        print(f"{wait_for('done.example', 3)} documents are done")


@contextmanager
def running(command):
    """Run *command* meanwhile; end it in order."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def redrive(*words):
    subprocess.run([*REDRIVE, *words], check=True, stdout=subprocess.DEVNULL)


def wait_for(topic, number):
    """Wait until *topic* has so many messages; return how many it has."""
    end = time.monotonic() + 120
    while (found := messages(topic)) < number and time.monotonic() < end:
        time.sleep(0.2)
    return found


def messages(topic):
    reader = Consumer({"bootstrap.servers": SERVERS, "group.id": "story"})
    try:
        partitions = reader.list_topics(topic, 10).topics[topic].partitions
        ends = [reader.get_watermark_offsets(TopicPartition(topic, number), 10) for number in partitions]
        return sum(high - low for low, high in ends)
    except KafkaException:  # a topic that was only just made
        return 0
    finally:
        reader.close()


if __name__ == "__main__":
    main()
