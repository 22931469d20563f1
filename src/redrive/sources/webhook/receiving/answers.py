"""
What a sender is answered.

Owns the statuses and their bodies: JSON, small, and without a word of what the sender wrote. Sends through ASGI alone.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping, Sequence

    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON = (b"content-type", b"application/json")
_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_QUIET = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_LAST = b"".join(b"%b: %b\r\n" % pair for pair in _QUIET) + b"content-length: %d\r\n\r\n"
_STATUS = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}
CLOSE = (b"connection", b"close")  # the unread rest of a body must not be taken for the next request


class Answer(msgspec.Struct, frozen=True):
    """A status, a body, and headers beside the usual ones."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


def json_answer(status: int, value: object, *headers: tuple[bytes, bytes]) -> Answer:
    """Return an answer with *value* as JSON."""
    return Answer(status, msgspec.json.encode(value), (_JSON, *headers))


def text_answer(status: int, text: str) -> Answer:
    """Return an answer with plain text."""
    return Answer(status, text.encode("utf-8", "replace"), (_TEXT,))


def refusal(status: int, why: str, *headers: tuple[bytes, bytes]) -> Answer:
    """Return an answer that says why nothing was kept."""
    return json_answer(status, {"error": why}, *headers)


NOT_FOUND = refusal(404, "there is no such source")
UNSIGNED = refusal(401, "the signature does not hold")
TOO_LARGE = refusal(413, "the body is larger than this source takes", CLOSE)
TOO_SLOW = refusal(408, "the request took too long to arrive", CLOSE)
HEADERS_TOO_LARGE = refusal(431, "the headers are larger than this inbox takes", CLOSE)
BUSY = refusal(503, "too many large requests arrive at the moment; send it again", (b"retry-after", b"1"), CLOSE)


FAILED = refusal(500, "the inbox could not take it; send it again", CLOSE)


def not_allowed(*methods: str) -> Answer:
    """Return the answer to another method."""
    return refusal(405, f"use {' or '.join(methods)}", (b"allow", ", ".join(methods).encode()))


def later(status: int, why: str, seconds: int) -> Answer:
    """Return an answer that asks the sender to try again."""
    return refusal(status, why, (b"retry-after", b"%d" % seconds))


def written(answer: Answer, default_headers: Sequence[tuple[bytes, bytes]], *, keep_alive: bool) -> bytes:
    """Return *answer* as it goes over the wire; its headers are all our own."""
    lines = [b"%b: %b\r\n" % pair for pair in (*default_headers, *answer.headers)]
    if not keep_alive and CLOSE not in answer.headers:
        lines.append(b"connection: close\r\n")
    return b"".join((_STATUS[answer.status], *lines, _LAST % len(answer.body), answer.body))


async def respond(send: Send, answer: Answer, *, head: bool = False) -> None:
    """Send *answer*; of a HEAD only what would stand above it."""
    headers = [*answer.headers, *_QUIET, (b"content-length", b"%d" % len(answer.body))]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else answer.body})
