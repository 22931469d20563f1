from __future__ import annotations

import pytest


def test_a_letter_is_kept_with_everything_said_about_it(redrive):
    receipt = redrive.json(
        "enqueue", "order.created", '{"order": 17}', "--queue", "orders", "--key", "c9", "--idempotency-key", "o17",
        "--priority", "high", "--policy", "linear:max_attempts=3", "--meta", "source=test", "--delay", "60",
    )  # fmt: skip

    shown = redrive.json("show", receipt["id"])
    letter = shown["letter"]
    assert (letter["queue"], letter["key"], letter["priority"]) == ("orders", "c9", "high")
    assert (shown["payload"], shown["metadata"]) == ({"order": 17}, {"source": "test"})
    assert shown["policy"].startswith("linear:")
    assert letter["due_at"] > letter["created_at"]


def test_a_duplicate_is_reported_and_changes_nothing(redrive):
    first = redrive.json("enqueue", "order.created", "1", "--idempotency-key", "o17")
    second = redrive.json("enqueue", "order.created", "2", "--idempotency-key", "o17")

    assert second == {"id": first["id"], "duplicate": True, "spooled": False}
    assert redrive.json("show", first["id"])["payload"] == 1


def test_a_payload_comes_from_a_file_or_from_standard_input(redrive, tmp_path):
    (tmp_path / "order.json").write_text('{"from": "file"}')

    from_file = redrive.json("enqueue", "k", "@order.json")["id"]
    redrive("enqueue", "k", "-", answer='{"from": "stdin"}')

    assert redrive.json("show", from_file)["payload"] == {"from": "file"}
    assert len(redrive.json("ls", "-q", "payload.from:stdin")["letters"]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("{order: 17}",), 1, "not valid JSON"),
        (("@nowhere.json",), 1, "cannot read a payload from 'nowhere.json'"),
        (("1", "--policy", "sometimes"), 1, "cannot read the retry policy"),
        (("1", "--priority", "urgent"), 2, "'urgent' is not a priority; use high, medium or low"),
        (("1", "--meta", "novalue"), 2, "NAME=VALUE"),
        (("1", "--delay", "nan"), 2, "greater than or equal to 0"),
        (("1", "--delay", "inf"), 1, "delay is inf and must be a number of seconds"),
        (("1", "--delay", "1790000000000"), 1, "is it in milliseconds"),
    ],
)
def test_what_cannot_be_kept_is_refused(redrive, arguments, code, message):
    assert message in redrive("enqueue", "k", *arguments, code=code).stderr
    assert redrive.statuses() == {}


def test_bytes_are_kept_as_they_are(redrive, tmp_path):
    (tmp_path / "raw").write_bytes(b"\x00\xff")

    letter_id = redrive.json("enqueue", "k", "@raw", "--content-type", "application/octet-stream")["id"]

    assert redrive.json("show", letter_id)["payload"] == "AP8="
