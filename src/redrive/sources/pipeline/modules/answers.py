"""
What a module's function says to the engine.

Owns the meaning of what it returns and raises: an outcome in the answer, or a gRPC status that engines retry. Knows
no server.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from redrive.core.failures.describe import clean
from redrive.errors import Reject, RetryAfter
from redrive.sources.pipeline.protos.document_pb2 import PipeDoc
from redrive.sources.pipeline.protos.module_pb2 import (
    OUTCOME_FAILURE,
    OUTCOME_SKIPPED,
    OUTCOME_SUCCESS,
    ProcessDataResponse,
)

if TYPE_CHECKING:
    Returned: TypeAlias = PipeDoc | ProcessDataResponse | None

_TEXT = 2_000  # characters of an exception's text


def answer_of(returned: Returned) -> ProcessDataResponse:
    """Return the answer that stands for what the function returned; raise TypeError if it means nothing."""
    if isinstance(returned, ProcessDataResponse):
        return returned
    if isinstance(returned, PipeDoc):
        return ProcessDataResponse(outcome=OUTCOME_SUCCESS, output_doc=returned)
    if returned is None:
        return ProcessDataResponse(outcome=OUTCOME_SKIPPED)
    kind = type(returned).__name__
    raise TypeError(f"the module's function returned {kind}; return a PipeDoc, None or a ProcessDataResponse")


async def fail(error: Exception, context: Any) -> ProcessDataResponse:
    """Return the answer that stands for *error*, or end the call with a status."""
    text = _text(error)
    if isinstance(error, Reject):
        return ProcessDataResponse(outcome=OUTCOME_FAILURE, error_message=text, error_code=type(error).__name__)
    if isinstance(error, RetryAfter):
        context.set_trailing_metadata(_wait(error.seconds, text))
        await context.abort(grpc.StatusCode.UNAVAILABLE, text)
    await context.abort(grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {text}")
    raise AssertionError  # abort raises


def _text(error: Exception) -> str:
    try:
        return clean(str(error), _TEXT)
    except Exception:  # noqa: BLE001 - the exception is the user's, and so is its __str__
        return "(its text cannot be had)"


def _wait(seconds: float, text: str) -> tuple[tuple[str, str | bytes], ...]:
    """Return the trailers that ask for a wait, in both ways that engines know."""
    whole = int(seconds)
    info = RetryInfo(retry_delay=Duration(seconds=whole, nanos=int((seconds - whole) * 1e9)))
    status = Status(code=grpc.StatusCode.UNAVAILABLE.value[0], message=text)
    status.details.add().Pack(info)
    return (
        ("grpc-retry-pushback-ms", str(ceil(seconds * 1000))),
        ("grpc-status-details-bin", status.SerializeToString()),
    )
