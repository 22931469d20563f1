"""
What a failed module call means.

Owns the one table from a gRPC code and its text to a remedy (retry, quarantine, hold) and to the word that becomes
`error_type`, and how long a module asks to wait. Pure: knows no channel, no clock and no document.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
import re2
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status as RpcStatus

from redrive.core.failures.describe import clean
from redrive.errors import Reject
from redrive.sources.pipeline.graph.model import RETRY_CODES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    Trailers = Iterable[tuple[str, str | bytes]]

HOLD_CODES = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED"})
TEXT_LIMIT = 2000  # characters of a module's own words that are kept
_TOO_LARGE = re2.compile(r"(?i)message larger than max")
_REFUSED = re2.compile(r"(?i)connection refused|failed to connect to all addresses")
_NO_TLS = re2.compile(r"(?i)tls handshake failed|verification check failed|failed to create security handshaker")
_CLOSED = re2.compile(r"(?i)connections to all backends failing.*socket closed")
_CLOSED_WHY = "; the module may ask for TLS, or for a certificate of an authority that it trusts"
_CANCELLED_WHY = (
    "; a module that stops cancels calls that it has not begun: add CANCELLED to `retry_codes` of the node, and "
    "readmit the document"
)
_HTTP_503 = re2.compile(r"(?i)http2? (header with )?status:? *503")
_PUSHBACK, _DETAILS = "grpc-retry-pushback-ms", "grpc-status-details-bin"


class Remedy(StrEnum):
    """Where a failed call leads: another call, quarantine, or a node that stands still."""

    RETRY = "retry"
    QUARANTINE = "quarantine"
    HOLD = "hold"


class Word(StrEnum):
    """The values of `error_type` that are no gRPC code. They are written to topics, so a value never changes."""

    TIMEOUT = "TIMEOUT"
    CONNECTION_REFUSED = "CONNECTION_REFUSED"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    HOST_NOT_FOUND = "HOST_NOT_FOUND"
    TLS_FAILED = "TLS_FAILED"
    UNDECODABLE_ANSWER = "UNDECODABLE_ANSWER"
    UNDECODABLE_RECORD = "UNDECODABLE_RECORD"
    UNKNOWN_NODE = "UNKNOWN_NODE"
    CEL_EVAL_ERROR = "CEL_EVAL_ERROR"
    DOCUMENT_MISSING = "DOCUMENT_MISSING"
    REPOSITORY_AWAY = "REPOSITORY_AWAY"
    TOO_MANY_REPLAYS = "TOO_MANY_REPLAYS"
    REDRIVE_FAULT = "REDRIVE_FAULT"


class Trouble(msgspec.Struct, frozen=True):
    """A failed step: its remedy, the word for `error_type`, and what was said; *wait* is what the module asks for."""

    remedy: Remedy
    word: str
    text: str
    wait: float | None = None  # seconds; the next call comes no earlier
    is_final: bool = False  # the module asked for no further call


class StepFailed(Exception):
    """A step at a node could not be carried out; `trouble` says why. Its text is `WORD: what was said`, or `WORD`."""

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble
        if trouble.wait is not None:
            self.retry_after = trouble.wait  # `classify` reads it
        super().__init__(f"{trouble.word}: {trouble.text}" if trouble.text else trouble.word)


class StepGivenUp(StepFailed, Reject):
    """The same, and the module asked for no further call."""


def failed_with(trouble: Trouble) -> StepFailed:
    """Return the exception that carries *trouble*."""
    return StepGivenUp(trouble) if trouble.is_final else StepFailed(trouble)


def trouble_of(code: str, text: str, trailers: Trailers = (), *, retry_codes: Collection[str] = RETRY_CODES) -> Trouble:
    """Return what a call that ended with the gRPC *code* means; *retry_codes* are a node's own."""
    said = clean(text, TEXT_LIMIT)
    if _TOO_LARGE.search(said):
        return Trouble(Remedy.QUARANTINE, Word.MESSAGE_TOO_LARGE, said)
    if code == "UNAVAILABLE" and _NO_TLS.search(said):  # gRPC reports it like a module that is away
        return Trouble(Remedy.HOLD, Word.TLS_FAILED, said)
    if code in retry_codes or _HTTP_503.search(said):
        wait, is_final = _asked(trailers)
        hint = _CLOSED_WHY if closes_connections(code, said) else ""
        return Trouble(Remedy.RETRY, _word(code, said), said + hint, wait, is_final)
    hint = _CANCELLED_WHY if code == "CANCELLED" else ""
    return Trouble(Remedy.HOLD if code in HOLD_CODES else Remedy.QUARANTINE, code, said + hint)


def closes_connections(code: str, text: str) -> bool:
    """Whether a call failed because the module closes every connection: it refuses the engine, or ends."""
    return code == "UNAVAILABLE" and bool(_CLOSED.search(text))


def quarantined(word: str, text: str) -> Trouble:
    """Return the trouble of a document that no further call can help."""
    return Trouble(Remedy.QUARANTINE, word, clean(text, TEXT_LIMIT))


def word_and_text(message: str) -> tuple[str, str]:
    """Return the word and the text of a StepFailed that arrives as its message."""
    word, _, text = message.partition(": ")
    return word, text


def _word(code: str, text: str) -> str:
    if code == "DEADLINE_EXCEEDED":
        return Word.TIMEOUT
    if code == "UNAVAILABLE" and _REFUSED.search(text):
        return Word.CONNECTION_REFUSED
    return code


# ---------------------------------------------------------------------- what the module asks for


def _asked(trailers: Trailers) -> tuple[float | None, bool]:
    """Return for how many seconds the module asks, and whether it asks for no further call."""
    waits: list[float] = []
    for name, value in trailers:
        if name == _PUSHBACK:
            span = _pushback(value)
            if span is None:
                return None, True  # as gRPC has it: negative, or no number, means never
            waits.append(span)
        elif name == _DETAILS and isinstance(value, bytes):
            waits += _retry_infos(value)
    return max(waits, default=None), False


def _pushback(value: str | bytes) -> float | None:
    text = value if isinstance(value, str) else value.decode("ascii", "replace")
    return int(text) / 1000 if text.isascii() and text.isdigit() and len(text) <= 10 else None  # noqa: PLR2004 - 115 days


def _retry_infos(value: bytes) -> list[float]:
    try:
        details = RpcStatus.FromString(value).details
        found = [each for each in details if each.Is(RetryInfo.DESCRIPTOR)]
        spans = [RetryInfo.FromString(each.value).retry_delay for each in found]
    except DecodeError:
        return []
    return [max(0.0, span.seconds + span.nanos / 1e9) for span in spans]
