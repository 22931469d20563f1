"""What kind of failure it was: the order of the rules, and their tables."""

from __future__ import annotations

import errno
import json
import socket
import sqlite3
import ssl
import urllib.error
from http import HTTPStatus
from types import SimpleNamespace

import msgspec
import pytest
from tests.core.failures.made import made

from redrive.core.classify import HANDLER, INBOX, KAFKA, WORKFLOW, Undecodable, classify, classify_text
from redrive.core.letter import Category
from redrive.core.policy import DEFAULT_RETRY_POLICY, LONGEST, RetryPolicy
from redrive.errors import Reject, RetryAfter

POLICY = DEFAULT_RETRY_POLICY


def kin(name: str, parent: str, **traits: object) -> BaseException:
    return made(name, type(made(parent)), **traits)


def answer(status: int, **headers: str) -> SimpleNamespace:
    return SimpleNamespace(status_code=status, headers={name.replace("_", "-"): text for name, text in headers.items()})


def amazon(status: int, code: str, **headers: str) -> dict[str, object]:
    return {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers}}


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def http_error(status: int) -> urllib.error.HTTPError:
    error = urllib.error.HTTPError("http://localhost", status, "no", {}, None)
    error.close()
    return error


# ---------------------------------------------------------------------- what a handler's errors mean


@pytest.mark.parametrize(
    ("error", "category", "rule"),
    [
        (ValueError("invalid literal for int()"), "transient", "no rule knows it"),
        (KeyError("order"), "transient", "no rule knows it"),
        (RuntimeError("connection refused"), "transient", "no rule knows it"),
        (TimeoutError(), "network", "TimeoutError"),
        (ConnectionResetError(), "network", "ConnectionError"),
        (socket.gaierror(8, "no such host"), "network", "gaierror"),
        (ssl.SSLError("handshake"), "network", "SSLError"),
        (MemoryError(), "resource", "MemoryError"),
        (PermissionError(13, "no"), "permission", "PermissionError"),
        (sqlite3.OperationalError("database is locked"), "transient", "OperationalError"),
        (urllib.error.URLError("down"), "network", "URLError"),
        (OSError(errno.ENOSPC, "full"), "resource", "errno"),
        (OSError(errno.EBUSY, "busy"), "transient", "errno"),
        (OSError(errno.EHOSTUNREACH, "gone"), "network", "errno"),
        (OSError("just so"), "transient", "no rule knows it"),
        (made("sqlalchemy.exc.OperationalError"), "transient", "sqlalchemy.OperationalError"),
        (kin("psycopg.errors.AdminShutdown", "psycopg.OperationalError"), "transient", "psycopg.OperationalError"),
        (kin("asyncpg.exceptions.X", "asyncpg.exceptions.PostgresConnectionError"), "network", "asyncpg"),
        (kin("httpx.ConnectTimeout", "httpx.TransportError"), "network", "httpx.TransportError"),
        (made("requests.exceptions.ConnectionError", OSError), "network", "requests.ConnectionError"),
        (
            kin("botocore.exceptions.EndpointConnectionError", "botocore.exceptions.ConnectionError"),
            "network",
            "botocore",
        ),
        (made("django.core.exceptions.PermissionDenied"), "permission", "django"),
        (caused(RuntimeError("could not ship"), ConnectionError()), "network", "ConnectionError"),
        (caused(RuntimeError("a"), caused(RuntimeError("b"), OSError(errno.ENOSPC, "full"))), "resource", "errno"),
    ],
)
def test_a_handlers_error_is_known_by_type_cause_or_errno_and_may_heal(error, category, rule):
    failure = classify(error, POLICY)
    assert (failure.category, failure.terminal) == (Category(category), False)
    assert rule in failure.rule


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (400, "validation"),
        (401, "permission"),
        (403, "permission"),
        (404, "permanent"),
        (408, "transient"),
        (409, "transient"),
        (422, "validation"),
        (429, "transient"),
        (500, "transient"),
        (502, "network"),
        (503, "transient"),
        (504, "network"),
        (507, "resource"),
        (599, "transient"),
    ],
)
def test_an_http_status_is_read_wherever_it_is_carried(status, category):
    carriers = [
        made("httpx.HTTPStatusError", response=answer(status)),
        made("requests.exceptions.HTTPError", OSError, response=answer(status)),
        made("aiohttp.ClientResponseError", status=status),
        made("shop.ApiError", status_code=HTTPStatus(status) if status != 599 else status),
        made("google.api_core.exceptions.GoogleAPICallError", code=status),
        made("botocore.exceptions.ClientError", response=amazon(status, "Odd")),
        http_error(status),
        caused(RuntimeError("could not ship"), made("shop.ApiError", status_code=status)),
    ]
    failures = [classify(error, POLICY) for error in carriers]
    assert {(failure.category, failure.rule) for failure in failures} == {
        (Category(category), f"it carries HTTP status {status}")
    }


@pytest.mark.parametrize("status", [200, 302, True, "503", None, 10**400])
def test_what_is_no_status_of_a_failure_is_not_read_as_one(status):
    assert "no rule knows it" in classify(made("shop.ApiError", status_code=status), POLICY).rule


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("UNAVAILABLE", "network"),
        ("DEADLINE_EXCEEDED", "network"),
        ("RESOURCE_EXHAUSTED", "resource"),
        ("INTERNAL", "transient"),
        ("PERMISSION_DENIED", "permission"),
        ("INVALID_ARGUMENT", "validation"),
        ("UNIMPLEMENTED", "permanent"),
    ],
)
def test_a_grpc_status_is_read(name, category):
    error = kin("grpc.aio._call.AioRpcError", "grpc.RpcError", code=lambda: SimpleNamespace(name=name))
    failure = classify(error, POLICY)
    assert (failure.category, failure.rule) == (Category(category), f"it carries gRPC status {name}")


def test_amazon_says_slow_down_with_400():
    error = made("botocore.exceptions.ClientError", response=amazon(400, "ThrottlingException"))
    assert classify(error, POLICY).category is Category.TRANSIENT


# ---------------------------------------------------------------------- what is terminal, and for whom

INTEGRITY = [
    sqlite3.IntegrityError("UNIQUE"),
    made("sqlalchemy.exc.IntegrityError"),
    kin("psycopg.errors.UniqueViolation", "psycopg.IntegrityError"),
    kin("asyncpg.exceptions.UniqueViolationError", "asyncpg.exceptions.IntegrityConstraintViolationError"),
    made("django.db.utils.IntegrityError"),
    made("some.driver.IntegrityError"),
    caused(RuntimeError("could not save"), sqlite3.IntegrityError("UNIQUE")),
]
INVALID = [made("pydantic_core._pydantic_core.ValidationError", ValueError), msgspec.ValidationError("no")]


def terminal_for(error: BaseException, policy: RetryPolicy = POLICY) -> list[str]:
    return [rules.name for rules in (HANDLER, INBOX, KAFKA, WORKFLOW) if classify(error, policy, rules).terminal]


@pytest.mark.parametrize("error", INTEGRITY, ids=lambda error: type(error).__module__)
def test_a_broken_constraint_is_terminal_for_handlers_and_the_workflow_queue(error):
    assert terminal_for(error) == ["handler", "workflow"]


@pytest.mark.parametrize("error", INVALID, ids=lambda error: type(error).__module__)
def test_data_that_a_schema_refused_is_terminal_for_handlers_and_the_workflow_queue(error):
    assert terminal_for(error) == ["handler", "workflow"]


def test_a_payload_that_does_not_decode_is_terminal_for_handlers_and_the_workflow_queue():
    failure = classify(Undecodable("not JSON"), POLICY)
    assert (failure.category, failure.rule) == (Category.VALIDATION, "the payload does not decode")
    assert terminal_for(Undecodable("not JSON")) == ["handler", "workflow"]


@pytest.mark.parametrize("error", [Reject("no"), type("Refused", (Reject,), {})("no")])
def test_a_reject_is_terminal_for_everybody(error):
    assert terminal_for(error) == ["handler", "inbox", "kafka", "workflow"]


@pytest.mark.parametrize("error", [ValueError("x"), TypeError("x"), json.JSONDecodeError("no", "x", 0)])
def test_a_value_error_of_the_handlers_own_code_is_terminal_for_the_workflow_queue_only(error):
    assert terminal_for(error) == ["workflow"]


# ---------------------------------------------------------------------- the policy's own lists


class OutOfStock(Exception):
    pass


class SoldOut(OutOfStock):
    pass


@pytest.mark.parametrize(
    ("terminal", "retryable", "error", "is_terminal", "rule"),
    [
        ((OutOfStock,), (), SoldOut(), True, "terminal_errors name"),
        (("OutOfStock",), (), SoldOut(), True, "terminal_errors name"),
        (("sqlite3.OperationalError",), (), sqlite3.OperationalError(), True, "sqlite3.OperationalError"),
        ((), (sqlite3.IntegrityError,), sqlite3.IntegrityError(), False, "retryable_errors name"),
        ((Exception,), (ConnectionError,), ConnectionResetError(), False, "retryable_errors name"),
        ((Exception,), (ConnectionError,), ValueError(), True, "terminal_errors name"),
        ((ValueError,), (ValueError,), ValueError(), True, "terminal_errors name"),
        ((OutOfStock,), (), ValueError(), False, "no rule knows it"),
        ((), (Reject,), Reject(), True, "raised Reject"),
    ],
)
@pytest.mark.parametrize("rules", [HANDLER, INBOX, KAFKA], ids=lambda rules: rules.name)
def test_the_policys_lists_win_over_tables_and_the_nearest_class_wins(
    terminal, retryable, error, is_terminal, rule, rules
):
    policy = RetryPolicy.exponential(terminal_errors=terminal, retryable_errors=retryable)
    failure = classify(error, policy, rules)
    assert failure.terminal is is_terminal
    assert rule in failure.rule


# ---------------------------------------------------------------------- how long an error asks for

DATED = {"Retry_After": "Sun, 15 Nov 2026 22:05:00 GMT", "Date": "Sun, 15 Nov 2026 22:03:20 GMT"}


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (RetryAfter(7), 7),
        (RetryAfter(float("inf")), LONGEST),
        (made("httpx.HTTPStatusError", response=answer(429, Retry_After="30")), 30),
        (made("httpx.HTTPStatusError", response=answer(503, **DATED)), 100),
        (made("httpx.HTTPStatusError", response=answer(503, Retry_After="Sun, 15 Nov 2026 22:05:00 GMT")), None),
        (made("httpx.HTTPStatusError", response=answer(503, Retry_After="soon")), None),
        (made("httpx.HTTPStatusError", response=answer(503, Retry_After="-5")), 0),
        (made("httpx.HTTPStatusError", response=answer(503, Retry_After="nan")), None),
        (made("httpx.HTTPStatusError", response=answer(503)), None),
        (made("aiohttp.ClientResponseError", status=429, headers={"retry-after": "9"}), 9),
        (made("botocore.exceptions.ClientError", response=amazon(429, "X", **{"retry-after": "4"})), 4),
        (made("shop.Busy", retry_after=2.5), 2.5),
        (caused(RuntimeError("could not ship"), made("shop.Busy", retry_after=2.5)), 2.5),
        (ValueError("x"), None),
    ],
)
def test_a_retry_after_is_honoured_wherever_it_is_carried(error, seconds):
    assert classify(error, POLICY).retry_after == seconds


def test_a_terminal_failure_asks_for_no_time():
    assert classify(made("some.IntegrityError", retry_after=5), POLICY).retry_after is None


# ---------------------------------------------------------------------- groups


def test_a_group_is_terminal_only_if_all_of_it_is():
    assert classify(ExceptionGroup("g", [Reject("a"), sqlite3.IntegrityError()]), POLICY).terminal
    mixed = classify(ExceptionGroup("g", [Reject("a"), ExceptionGroup("h", [TimeoutError()])]), POLICY)
    assert (mixed.terminal, mixed.category) == (False, Category.NETWORK)
    assert mixed.rule.startswith("1 of 2 errors of a group can heal: ")


def test_a_group_waits_for_the_longest_that_any_of_it_asked_for():
    assert classify(ExceptionGroup("g", [RetryAfter(3), RetryAfter(9), ValueError()]), POLICY).retry_after == 9


def test_a_policy_may_name_groups_themselves():
    policy = RetryPolicy.exponential(terminal_errors=(ExceptionGroup,))
    assert classify(ExceptionGroup("g", [TimeoutError()]), policy).terminal


# ---------------------------------------------------------------------- the workflow queue, and texts


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("Rate limit exceeded", "transient"),
        ("temporary failure, try again", "transient"),
        ("the service is busy", "transient"),
        ("HTTP 503", "transient"),
        ("Connection refused", "network"),
        ("request timed out", "network"),
        ("SSL: wrong version", "network"),
        ("out of memory", "resource"),
        ("No space left on device: disk full", "resource"),
        ("quota exceeded", "resource"),
        ("Access denied", "permission"),
        ("401 Unauthorized", "permission"),
        ("Invalid input", "validation"),
        ("malformed data", "validation"),
        ("invalid connection string", "validation"),
        ("author not found", "permanent"),
        ("contemporary art not found", "permanent"),
        ("something odd", "permanent"),
        ("", "permanent"),
    ],
)
def test_the_workflow_queue_reads_texts_by_whole_words(text, category):
    hopeless = category in {"permission", "validation", "permanent"}
    for failure in (classify(RuntimeError(text), POLICY, WORKFLOW), classify_text("JobError", text, POLICY, WORKFLOW)):
        assert (failure.category, failure.terminal) == (Category(category), hopeless)


def test_a_timeout_without_a_text_is_still_a_timeout_in_the_workflow_queue():
    assert classify(TimeoutError(), POLICY, WORKFLOW).category is Category.NETWORK


@pytest.mark.parametrize(
    ("error_type", "message", "category", "terminal"),
    [
        ("redrive.errors.Reject", "no", "permanent", True),
        ("TerminalHandlerError", "no", "permanent", True),
        ("sqlalchemy.exc.IntegrityError", "dup", "permanent", True),
        ("ConnectionError", "", "network", False),
        ("java.lang.Odd", "Connection refused", "network", False),
        ("java.lang.Odd", "nothing known", "transient", False),
        ("shop.Gone", "x", "permanent", True),
        ("x.y.ValueError", "x", "permanent", True),
    ],
)
def test_errors_that_arrive_as_text_are_judged_by_name_and_text(error_type, message, category, terminal):
    policy = RetryPolicy.exponential(terminal_errors=("shop.Gone", ValueError))
    failure = classify_text(error_type, message, policy)
    assert (failure.category, failure.terminal) == (Category(category), terminal)
