"""
What a sender says, checked.

Owns turning payloads, ids, headers, priorities and policies into what a draft holds, and refusing
at the door what could not be read later. Knows no store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from redrive.core.finite import check_finite
from redrive.core.letter import BYTES, JSON, Priority
from redrive.core.policy import RetryPolicy
from redrive.errors import PayloadError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def encode(payload: Any, kind: str) -> tuple[str, bytes]:
    """Return content type and bytes of *payload*: bytes as they are, anything else as JSON."""
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return BYTES, bytes(payload)
    try:
        body = _encode_json(payload)
        if b"null" in body:  # as which NaN is written
            check_finite(msgspec.to_builtins(payload, enc_hook=_foreign), f"the payload of a {kind!r} letter")
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise PayloadError(
            f"cannot write the payload of a {kind!r} letter as JSON: {type(error).__name__}; "
            "give plain data, a dataclass, a msgspec Struct, a pydantic model, or bytes"
        ) from error
    return JSON, body


def _foreign(value: Any) -> Any:
    """Encode what msgspec does not know: pydantic models."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(type(value).__name__)
    return dump(mode="json")


_encode_json = msgspec.json.Encoder(enc_hook=_foreign).encode


def uuid_of(given: str) -> str:
    """Return a letter's id as every store writes it; raise PayloadError for what is none."""
    try:
        return str(UUID(given))
    except (ValueError, AttributeError, TypeError):
        raise PayloadError(
            f"cannot use {str(given)[:40]!r} as a letter's id: it must be a UUID; "
            "give a name of your own as idempotency_key"
        ) from None


def headers_of(given: Sequence[tuple[str, bytes]], kind: str) -> tuple[tuple[str, bytes], ...]:
    """Return the headers; refused at the door is better than unreadable later."""
    for name, value in given:
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise PayloadError(
                f"cannot keep the header {name!r} of a {kind!r} letter: headers are pairs of str and bytes; "
                "encode the value first"
            )
    return tuple((name, value) for name, value in given)


def metadata_of(given: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the metadata; raise PayloadError for what JSON does not know."""
    kept, what = dict(given), f"the metadata of a {kind!r} letter"
    try:
        check_finite(msgspec.to_builtins(kept), what)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise PayloadError(f"cannot write {what} as JSON: {type(error).__name__}; give plain data") from error
    return kept


def priority_of(name: str) -> Priority:
    """Return the priority of that name."""
    try:
        return Priority[name.upper()]
    except KeyError:
        raise ValueError(f"{name!r} is not a priority; use high, medium or low") from None


def policy_text(policy: RetryPolicy | str) -> str:
    """Return what a letter carries of *policy*; a policy of which something would be forgotten is refused."""
    if isinstance(policy, str):
        return RetryPolicy.parse(policy).text
    if policy.function is not None or RetryPolicy.parse(policy.text) != policy:
        raise PolicyError(
            f"a letter cannot carry {policy!r}: functions and lists of errors cannot be kept with it; "
            "give that policy to the handler instead"
        )
    return policy.text
