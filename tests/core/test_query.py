"""What a query says, and what it finds."""

from __future__ import annotations

import re
import time
from fnmatch import fnmatchcase
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive.core.letter import Letter, Priority, Status
from redrive.core.query import MAX_LENGTH, MAX_TERMS, Query, Term, glob, parse, require
from redrive.core.query.terms import FIELDS
from redrive.errors import QueryError

NOW = 1_700_000_000_000_000
HOUR = 3_600_000_000

DEAD = Letter(
    "0190-a",
    "shop",
    "order.created",
    msgspec.json.encode(
        {
            "user": {"id": 42, "name": "Zoë", "vip": True, "ref": None},
            "total": 12.5,
            "big": 9_007_199_254_740_993,
            "text": "42",
            "lines": [{"sku": "a*b"}, "plain"],
            "a.b": {"0": "zero"},
        }
    ),
    key="customer-9",
    priority=Priority.HIGH,
    status=Status.FAILED,
    attempts=5,
    losses=1,
    cycles=2,
    category="network",
    error_type="TimeoutError",
    last_error='connection to "db, main" timed out: TimeOut after 30s',
    fingerprint="7f3a91",
    why="exhausted",
    failed_us=NOW - HOUR,
    created_us=NOW - 2 * HOUR,
    due_us=NOW - HOUR // 2,
    origin="kafka:orders/3@17",
    headers=(("x-error-reason", b"boom"), ("x-error-reason", b"bang"), ("raw", b"\xff\xfe"), ("a.b:c", b"dotted")),
    metadata={"region": "eu", "deep": {"n": [1, 2.0]}},
)


def found(text: str, **changes: Any) -> bool:
    return parse(text).matches(msgspec.structs.replace(DEAD, **changes), NOW)


# ---------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("status:failed", Term("status", "eq", ("failed",))),
        ("status:FAILED,archived", Term("status", "eq", ("failed", "archived"))),
        ("status:*ed", Term("status", "eq", ("delivered", "failed", "archived"))),
        ("priority:~i", Term("priority", "eq", ("high", "medium"))),
        ("-kind:x", Term("kind", "eq", ("x",), negated=True)),
        ("kind:order.*", Term("kind", "glob", ("order.*",))),
        ("kind:order.*,pay", Term("kind", "glob", ("order.*", "pay"))),
        ('kind:"order.*"', Term("kind", "eq", ("order.*",))),
        ('kind:"a b"*', Term("kind", "glob", ("a b*",))),
        ("error:~timeout", Term("error", "contains", ("timeout",))),
        ("error:~a,~b", Term("error", "contains", ("a", "b"))),
        ("timeout", Term("error", "contains", ("timeout",))),
        ('-"timed out"', Term("error", "contains", ("timed out",), negated=True)),
        ('"http://x"', Term("error", "contains", ("http://x",))),
        ("~a*", Term("error", "contains", ("a*",))),
        ("type:ValueError", Term("error_type", "eq", ("ValueError",))),
        ("group:7f3a", Term("group", "prefix", ("7f3a",))),
        ("group:*", Term("group", "glob", ("*",))),
        ("attempts:3,4", Term("attempts", "eq", (3.0, 4.0))),
        ("attempts:>=3", Term("attempts", "ge", (3.0,))),
        ("age:>1h", Term("age", "gt", (3600.0,))),
        ("age:>1h30m", Term("age", "gt", (5400.0,))),
        ("failed:<=500ms", Term("failed", "le", (0.5,))),
        ("due:<-5m", Term("due", "lt", (-300.0,))),
        ("age:<90", Term("age", "lt", (90.0,))),
        ("payload.user.id:42", Term("payload", "eq", ("42",), path=("user", "id"))),
        ("payload.n:>1e3", Term("payload", "gt", (1000.0,), path=("n",))),
        ('payload."a.b".0:x', Term("payload", "eq", ("x",), path=("a.b", "0"))),
        ("header.x.y:z", Term("header", "eq", ("z",), path=("x.y",))),
        (r'kind:"say \"a\\b\""', Term("kind", "eq", (r'say "a\b"',))),
        (r"kind:a\b", Term("kind", "eq", (r"a\b",))),
        ('kind:""', Term("kind", "eq", ("",))),
        ("origin:kafka:orders/3@17", Term("origin", "eq", ("kafka:orders/3@17",))),
    ],
)
def test_a_term_reads_as(text: str, term: Term) -> None:
    assert parse(text).terms == (term,)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("  status:failed \n kind:order.*  ", "status:failed kind:order.*"),
        ("type:x boom", "error_type:x error:~boom"),
        ("age:>3600s due:<0.25 age:<=14d", "age:>1h due:<0.25s age:<=2w"),
        ('kind:"plain",">x"', 'kind:plain,">x"'),
        ("attempts:3.0 payload.n:>1e16", "attempts:3 payload.n:>1e+16"),
        ('header."a b":"c d"*', 'header."a b":"c d"*'),
    ],
)
def test_the_canonical_text_is_short_and_stable(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical
    assert str(parse(canonical)) == canonical


def test_an_empty_query_reads_and_fits_everything_but_never_acts() -> None:
    empty = parse(" \n ")
    assert empty == Query()
    assert empty.is_empty
    assert empty.matches(DEAD, NOW)
    with pytest.raises(QueryError, match="an empty query never acts; "):
        require(empty)


def test_a_query_that_says_something_may_act() -> None:
    query = parse("status:failed")
    assert not query.is_empty
    assert require(query) is query


# ---------------------------------------------------------------------- finding


@pytest.mark.parametrize(
    "text",
    [
        "status:failed kind:order.* error:~timeout payload.user.id:42 age:>1h group:7f3a",
        "id:0190-a queue:shop kind:order.created category:network key:customer-9 priority:high",
        "attempts:5 attempts:>4 attempts:<=5 losses:1,7 cycles:>=2",
        "kind:nothing,order.*",
        "group:7f3a91 group:7 group:*91 group:~F3A",
        "error:~TIMEOUT error:connection*30s type:TimeoutError",
        'timeout "db, main" error:~nothing,timed',
        "why:exhausted origin:kafka:orders/* -tenant:* -release:x -generation:>0 -policy:~x",
        "age:>1h59m age:<=2h age:>=2h failed:<61m due:<0 due:>-31m",
        'payload.user.name:Zoë payload.user.name:~zOË payload.user.name:Z* payload.lines.0.sku:"a*b"',
        "payload.user.id:42.0 payload.user.id:4.2e1 payload.user.id:>41 payload.user.id:4*",
        "payload.user.vip:true payload.user.ref:null payload.total:12.5 payload.total:12.50",
        "payload.text:42 payload.lines.1:plain payload.big:9007199254740993 -payload.big:9007199254740992",
        'payload."a.b".0:zero',
        'header.x-error-reason:boom header.x-error-reason:ba* -header.raw:* header.a.b":"c:dotted',
        "metadata.region:eu,us metadata.deep.n.1:2 metadata.deep.n.0:<1.5",
    ],
)
def test_this_finds_the_letter(text: str) -> None:
    for term in parse(text).terms:
        assert term.matches(DEAD, NOW), str(term)
    assert found(text)


@pytest.mark.parametrize(
    "text",
    [
        "status:pending",
        "-status:failed",
        "status:failed kind:other",
        "kind:order",
        "kind:ORDER.*",
        "kind:order.?reated",
        'kind:"order.*"',
        "tenant:*",
        "generation:<100",
        "error:timeout",
        "type:timeout*",
        "group:f3a",
        "attempts:>5",
        "age:>2h",
        "due:>0",
        "failed:>60m",
        "payload.user:*",
        "payload.lines:*",
        "payload.lines.2:*",
        "payload.lines.-1:*",
        "payload.user.nothing:null",
        "payload.user.vip:1",
        "payload.user.vip:>0",
        "payload.text:>41",
        "payload.text:42.0",
        "payload.user.id:042",
        "payload.big:9007199254740992",
        "header.X-Error-Reason:boom",
        "header.raw:~a",
        "metadata.deep:*",
    ],
)
def test_this_does_not_find_the_letter(text: str) -> None:
    assert not found(text)


MAY_BE_MISSING = {
    **dict.fromkeys(("error", "error_type", "group", "key", "idempotency_key", "origin", "tenant"), "*"),
    **dict.fromkeys(("handler", "release", "policy", "why", "plan"), "*"),
    "category": "*",
    "generation": "<9e9",
    "failed": "<1w",
}


@pytest.mark.parametrize(("name", "value"), MAY_BE_MISSING.items())
def test_a_value_that_is_not_there_fits_no_term_and_every_negated_one(name: str, value: str) -> None:
    missing = {FIELDS[name].attribute: None}
    assert not found(f"{name}:{value}", **missing)
    assert found(f"-{name}:{value}", **missing)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\x00",
        b"{",
        b'{"a": NaN}',
        b'{"a": ' + b"9" * 5_000 + b"}",
        b'{"a":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'"a"',
        b"null",
        b'{"a": "\\ud800"}',
    ],
    ids=lambda payload: repr(payload[:12]),
)
def test_a_payload_that_cannot_be_read_just_does_not_fit(payload: bytes) -> None:
    assert not found("payload.a:*", payload=payload)
    assert found("-payload.a:*", payload=payload)


def test_a_payload_is_decoded_at_most_once_and_only_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    decode = msgspec.json.decode
    monkeypatch.setattr(msgspec.json, "decode", lambda payload: decoded.append(1) or decode(payload))
    assert found("kind:order.*")
    assert not decoded
    assert found("payload.user.id:42 -payload.user.id:43 payload.text:42")
    assert len(decoded) == 1


@given(st.text("ab*", max_size=8), st.text("ab", max_size=12))
def test_a_star_stands_for_any_run_and_the_whole_value_must_fit(pattern: str, text: str) -> None:
    assert glob(pattern, text) == fnmatchcase(text, pattern)


@pytest.mark.parametrize("text", ["?", "[a]", "a.b", "^$", "\\", "%", "_"])
def test_only_the_star_is_special(text: str) -> None:
    assert glob(text, text)
    assert glob(f"*{text}*", f"x{text}y")
    assert not glob(text, "a")


def test_a_hostile_glob_takes_no_time() -> None:
    started = time.thread_time()  # of its own: others may have the machine
    assert not glob("*a" * 2_000 + "b", "a" * 1_000_000)
    assert not glob("*" + "a" * 2_000 + "b*c", "a" * 1_000_000 + "c")
    assert time.thread_time() - started < 2


# ---------------------------------------------------------------------- refusing


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("statsu:failed", "at character 1: there is no field 'statsu', did you mean 'status'? there are id, status, "),
        ("kind:x Kind:y", "at character 8: there is no field 'Kind', did you mean 'kind'?"),
        ("http://x", "there is no field 'http'"),
        (":x", "there is no field ''"),
        ("kind.x:y", "'kind' has no parts; write kind:value"),
        ("status:dead", "'status' is never 'dead'; there are pending, in_flight, delivered, failed, archived"),
        ("status:fialed", "did you mean 'failed'?"),
        ("priority:urgent*", "'priority' is never 'urgent*'; there are high, medium, low"),
        ("kind:", "a value is missing"),
        ("kind:a,,b", "a value is missing"),
        ("kind:~", "a value is missing"),
        ("-", "a value is missing"),
        ("kind:>x", "'kind' is text and has no order"),
        ("<html>", "'error' is text and has no order"),
        ("age:1h", "'age' is a span and needs a comparison; write age:>1h"),
        ("age:~1h", "'age' is a span and needs a comparison"),
        ("age:>soon", "'soon' is not a span; write 90s, "),
        ("age:>1h,2h", "a comparison takes one value; write two terms"),
        ("age:>99999999w", "is not a span"),
        ("age:>", "a value is missing"),
        ("attempts:many", "'attempts' compares with numbers, and 'many' is none"),
        ("attempts:~3", "'attempts' is a number"),
        ("attempts:>nan", "compares with numbers"),
        ("attempts:>1e999", "compares with numbers"),
        ("attempts:>" + "9" * 400, "compares with numbers"),
        ("payload.n:>x", "'payload' compares with numbers, and 'x' is none"),
        ("payload:x", "'payload' needs a name after each dot, such as payload.user:42"),
        ("payload.a..b:x", "needs a name after each dot"),
        ("header.:x", "'header' needs a name"),
        ('kind:x "open', "at character 8: this quote is never closed"),
        ('kind:"a\\', "this quote is never closed"),
        ('kind:a*"*"', "both the wildcard * and a quoted *"),
        ("error:~a,>b", "two different signs"),
        ("kind:a\0b", "at character 7: a NUL cannot be searched for"),
        ("kind:\ud800", "at character 6: '\\ud800' is half a character"),
        ("key:caf\udce9", "at character 8: the query is not UTF-8; write the byte as \\xe9"),
        ("x" * (MAX_LENGTH + 1), f"it has {MAX_LENGTH + 1} characters, more than {MAX_LENGTH}"),
        ("x " * (MAX_TERMS + 1), f"it has {MAX_TERMS + 1} terms, more than {MAX_TERMS}"),
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_what_cannot_be_read_is_refused_with_its_place_and_a_way_out(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=re.escape(message)):
        parse(text)


def test_a_message_stays_short_whatever_was_written() -> None:
    with pytest.raises(QueryError) as refused:
        parse("x" * 4_000 + ":y")
    assert len(str(refused.value)) < 500


pieces = st.sampled_from(
    [*FIELDS, "type", "payload.a.b", "header.x", *':,~<>=*"-.\\ ', ">=", "1h", "42", "-3", "failed", "high", "é", "x y"]
)


def stands_for_itself(text: str) -> None:
    try:
        query = parse(text)
    except QueryError:
        return
    assert parse(str(query)) == query
    assert isinstance(query.matches(DEAD, NOW), bool)


@given(st.text())
@example('kind:"\\\\,"')
@example("\x85kind:\u2003x")
def test_any_text_is_read_or_refused_and_reads_back_the_same(text: str) -> None:
    stands_for_itself(text)


@given(st.lists(pieces, max_size=25).map("".join))
@example("\\" * 2_100 + '","')
def test_anything_like_a_query_is_read_or_refused_and_reads_back_the_same(text: str) -> None:
    stands_for_itself(text)


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@given(words, st.lists(words, min_size=1, max_size=3), st.booleans())
def test_any_value_can_be_asked_for_in_quotes(name: str, values: list[str], negated: bool) -> None:
    term = Term("payload", "eq", tuple(values), negated, (name, "x"))
    assert parse(str(term)).terms == (term,)
    letter = msgspec.structs.replace(DEAD, payload=msgspec.json.encode({name: {"x": values[-1]}}))
    assert term.matches(letter, NOW) is not negated


@given(st.integers(-(10**15), 10**15), st.integers(-(10**15), 10**15))
def test_a_span_is_exact_to_the_microsecond(age_us: int, other_us: int) -> None:
    letter = msgspec.structs.replace(DEAD, created_us=NOW - age_us)
    for bound in (age_us, other_us):
        at_least, more = parse(f"age:>={bound / 1e6:.6f}s age:>{bound / 1e6:.6f}s").terms
        assert at_least.micros == bound
        assert at_least.matches(letter, NOW) == (age_us >= bound)
        assert more.matches(letter, NOW) == (age_us > bound)
