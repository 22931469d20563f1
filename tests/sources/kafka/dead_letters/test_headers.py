"""What a dead letter says of itself."""

from __future__ import annotations

import msgspec
from tests.sources.kafka.samples import partition, record

from redrive.core.classify import KAFKA, classify
from redrive.core.letter import Category, Failure
from redrive.core.policy import RetryPolicy
from redrive.sources.kafka.collect.convert import FoundRecord, draft_of
from redrive.sources.kafka.dead_letters.dialects import read_account
from redrive.sources.kafka.dead_letters.headers import HISTORY_KEPT, PLAIN, dead_letter_headers
from redrive.sources.kafka.records.completion import CompletionEvent, CompletionStatus
from redrive.sources.kafka.records.record import CREATE_TIME

BROKEN = Failure(error_type="ValueError", message="no such order", category=Category.TRANSIENT, rule="the default")


def headers_of(one, *, failure=BROKEN, attempt=3, group="shipping"):
    event = CompletionEvent(one, CompletionStatus.FAILURE, attempt, failure, "retries_exhausted")
    return dead_letter_headers(event, group, failed_at=2000, first_failed_at=1000)


def test_the_six_plain_headers_are_exactly_these():
    one = record(17, of=partition(3, epoch=9))
    assert headers_of(one)[:6] == [
        ("x-error-reason", b"no such order"),
        ("x-retry-attempt", b"3"),
        ("source-topic", b"orders"),
        ("partition", b"3"),
        ("offset", b"17"),
        ("epoch", b"9"),
    ]


def test_the_rest_is_in_our_own_namespace():
    one = record(17, timestamp=123, timestamp_type=CREATE_TIME, of=partition(3))
    ours = dict(headers_of(one)[6:])
    assert ours == {
        "x-redrive-id": b"orders/3/17@shipping",
        "x-redrive-disposition": b"retries_exhausted",
        "x-redrive-exception": b"ValueError",
        "x-redrive-group": b"shipping",
        "x-redrive-first-failed-at": b"1000",
        "x-redrive-failed-at": b"2000",
        "x-redrive-timestamp": b"123",
        "x-redrive-timestamp-type": b"create",
        "x-redrive-schema": b"1",
    }


def test_the_records_own_headers_stay_in_order_duplicates_nulls_and_all():
    own = [("trace", b"1"), ("trace", b"2"), ("none", None), ("bytes", b"\xff\x00"), ("offset", b"theirs")]
    found = headers_of(record(headers=own))
    assert found[:5] == own
    assert [value for name, value in found if name == "offset"] == [b"theirs", b"0"]


def test_headers_never_grow_when_a_replayed_record_dies_again_and_again():
    own, sizes = [("trace", b"1"), ("partition", b"theirs")], []
    headers = list(own)
    for offset in range(30):
        headers = headers_of(record(offset, headers=headers))
        sizes.append(len(headers))
        assert headers[:2] == own
    assert len(set(sizes[1:])) == 1
    history = msgspec.json.decode(dict(headers)["x-redrive-history"])
    assert [line["offset"] for line in history] == [str(offset) for offset in range(28, 28 - HISTORY_KEPT, -1)]
    assert sum(name in PLAIN for name, _ in headers) == 7


def test_the_count_of_replays_survives_the_next_death():
    first = [*headers_of(record()), ("x-redrive-replays", b"2")]
    assert dict(headers_of(record(headers=first)))["x-redrive-replays"] == b"2"


def test_a_foreign_header_in_our_namespace_does_no_harm():
    found = headers_of(record(headers=[("x-redrive-schema", b"1"), ("x-redrive-history", b"\xff{")]))
    assert dict(found)["x-redrive-history"] == b"[{}]"


def test_an_error_without_words_leaves_its_type_as_the_reason():
    silent = msgspec.structs.replace(BROKEN, message="")
    found = dict(headers_of(record(), failure=silent))
    assert (found["x-error-reason"], found["x-redrive-exception"]) == (b"ValueError", b"ValueError")


def failure_of(error, cause):
    error.__cause__ = cause
    return classify(error, RetryPolicy(), KAFKA)


def test_the_reason_is_the_errors_own_text_and_its_causes_have_their_own_header():
    failure = failure_of(ValueError("no order\ncaused by a typo"), ConnectionError("refused"))
    found = dict(headers_of(record(), failure=failure))
    assert found["x-error-reason"] == b"no order\ncaused by a typo"
    assert found["x-redrive-causes"] == b"caused by ConnectionError: refused"


def test_an_error_without_words_that_has_a_cause_leaves_its_type_as_the_reason():
    found = dict(headers_of(record(), failure=failure_of(KeyError(), ConnectionError("refused"))))
    assert (found["x-error-reason"], found["x-redrive-causes"]) == (b"KeyError", b"caused by ConnectionError: refused")


def test_the_reason_of_a_group_is_its_own_text():
    found = dict(headers_of(record(), failure=failure_of(ExceptionGroup("two sites", [ValueError("a")]), None)))
    assert found["x-error-reason"] == b"two sites (1 sub-exception)"
    assert found["x-redrive-causes"] == b"- ValueError: a"


def test_a_collected_dead_letter_says_its_causes_too():
    failure = failure_of(ValueError("no order"), ConnectionError("refused"))
    headers = tuple(headers_of(record(), failure=failure))
    found = FoundRecord(topic="d", topic_id="i", partition=0, offset=0, key=None, value=b"", headers=headers)
    kept = draft_of(found, read_account(headers), "x").failure
    assert kept.message == "no order\ncaused by ConnectionError: refused"


def test_a_long_reason_is_cut_and_says_so():
    long = msgspec.structs.replace(BROKEN, message="ä" * 5000)
    reason = dict(headers_of(record(), failure=long))["x-error-reason"]
    assert len(reason) <= 1024
    assert reason.decode().endswith("…")
