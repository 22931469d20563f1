"""The page for people with a loop of their own, on a real broker: the new consumer goes on where the loop stopped."""

from __future__ import annotations

import json

import pytest
from tests.docs.pages import DOCS, blocks
from tests.examples.reader import Reader

PAGE = DOCS / "how-to" / "move-from-a-kafka-loop.md"
FILES = {block.title: block.code for block in blocks(PAGE, "python")}
ADDRESSES = ["1 Main Street", "2 Side Road", "3 Market Square", "4 Church Lane"]


def lines(first, last):
    return {f"order {number} goes to {ADDRESSES[number]}" for number in range(first, last)}


def put(stage, first, last):
    orders = ({"number": number, "address": ADDRESSES[number]} for number in range(first, last))
    stage.produce({"value": json.dumps(order), "key": str(order["number"])} for order in orders)


@pytest.mark.slow
def test_the_consumer_goes_on_where_the_loop_stopped(stage, tmp_path):
    assert set(FILES) == {"loop.py", "shop.py"}
    stage.create(2)
    for name, code in FILES.items():  # other tests have topics and groups on the same broker
        (tmp_path / name).write_text(
            code.replace('"orders"', f'"{stage.topic}"').replace('"shipping"', f'"{stage.group}"')
        )
    reader = Reader(tmp_path)
    reader.env["KAFKA_BOOTSTRAP_SERVERS"] = stage.bootstrap
    put(stage, 0, 2)
    reader.run_until("python loop.py", lines(0, 2), farewell=None)
    put(stage, 2, 4)
    reader.run_until("redrive kafka consume shop:consumer", lines(2, 4))
