"""
What an error carries: a status, a code, a wait that it asks for.

Owns where the libraries of the field put such values, found by name without importing them. Every reader returns None
for what it cannot read, and none raises: exceptions are other people's classes. Knows no category and no rule.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import isnan, nan

from redrive.core.failures import known
from redrive.core.failures.describe import NAME_LIMIT, clean, peek
from redrive.core.policy import LONGEST


def grpc_status(error: BaseException, packages: set[str]) -> str | None:
    """Return the name of the gRPC status that *error* carries, if its classes come from a gRPC package."""
    if "grpc" in packages:
        name = peek(_answer(peek(error, "code")), "name")
    elif "grpclib" in packages:
        name = peek(peek(error, "status"), "name")
    else:
        return None
    return name if type(name) is str and name in known.GRPC else None


def _answer(function: object) -> object:
    try:
        return function() if callable(function) else None
    except Exception:  # noqa: BLE001 - user code
        return None


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status of 400 or more that *error*, or its response, carries."""
    response = peek(error, "response")
    numbers = [peek(error, name) for name in ("status_code", "status", "code")]
    numbers += [peek(response, name) for name in ("status_code", "status")]
    numbers.append(_item(_item(response, "ResponseMetadata"), "HTTPStatusCode"))
    whole = (int.__int__(number) for number in numbers if issubclass(type(number), int))
    return next((number for number in whole if 400 <= number < 600), None)  # noqa: PLR2004 - HTTP's errors


def throttle_code(error: BaseException) -> str | None:
    """Return the code of an answer that asks for fewer requests, as AWS gives it."""
    code = _item(_item(peek(error, "response"), "Error"), "Code")
    return code if type(code) is str and known.THROTTLED.search(clean(code, NAME_LIMIT)) else None


def retry_after(error: BaseException) -> float | None:
    """Return the seconds that *error*, or its response, asks the caller to wait."""
    if (asked := span(peek(error, "retry_after"))) is not None:
        return asked
    response = peek(error, "response")
    metadata = _item(response, "ResponseMetadata")
    for headers in (peek(response, "headers"), peek(error, "headers"), _item(metadata, "HTTPHeaders")):
        if (asked := _read_header(headers)) is not None:
            return asked
    return None


def _read_header(headers: object) -> float | None:
    """Return the seconds of a Retry-After; one that is a date counts from the same answer's Date."""
    value = _item(headers, "Retry-After")
    value = _item(headers, "retry-after") if value is None else value
    if (seconds := span(value)) is not None:
        return seconds
    until, sent = _moment(value), _moment(_item(headers, "Date"))
    return max(0.0, (until - sent).total_seconds()) if until and sent else None


def _moment(value: object) -> datetime | None:
    try:
        return datetime.strptime(value, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def span(value: object) -> float | None:
    """Return *value* as seconds, at most as long as any policy waits; None if it is no number."""
    try:
        seconds = float(value) if type(value) in (int, float, str) else nan  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return None
    return None if isnan(seconds) else max(0.0, min(seconds, LONGEST))


def _item(mapping: object, key: str) -> object:
    try:
        return mapping[key]  # type: ignore[index]
    except Exception:  # noqa: BLE001 - no mapping, no such key, or user code that raises
        return None
