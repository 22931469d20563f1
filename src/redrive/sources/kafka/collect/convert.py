"""
Kafka records as letters, and letters as Kafka records.

Owns both directions: a dead letter of a topic becomes a failed letter with its origin, and a letter becomes a message
to produce. Bytes in are bytes out: what a letter cannot hold (a key that is no text, a null value or header) is kept
in its metadata. Knows no Kafka client.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.core.classify import KAFKA, classify_text
from redrive.core.failures.fingerprint import fingerprint
from redrive.core.letter import BYTES, JSON, Draft
from redrive.core.trace_context import carrier_in, carrier_of, continuing
from redrive.errors import Reject, SourceError
from redrive.sources.kafka.config_checks import topic_problem
from redrive.sources.kafka.dead_letters.dialects import OURS, Account
from redrive.sources.kafka.dead_letters.headers import NAMESPACE, homeward, once_more
from redrive.sources.kafka.dead_letters.oversize import REF, whole
from redrive.sources.kafka.records.messages import key_text

if TYPE_CHECKING:
    from redrive.core.letter import Failure, Letter
    from redrive.sources.kafka.records.dead_letter import Header

KIND = "kafka"  # the scheme of origins, the default queue, and the beginning of the kind
LETTER_ID = f"{NAMESPACE}letter"
_UNKNOWN = "UnknownFailure"
_MOST_TRIES = 1_000_000
_LATEST_MS = 4_102_444_800_000  # the year 2100
_TITLE = 600  # characters
_RULES = msgspec.structs.replace(KAFKA, is_grouped=True)  # at the desk people group them
_PART = "kafka"  # where a letter's metadata speaks of its record


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecord:
    """A record of a dead-letter topic, as it stands there."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int = 0  # ms, when it was written there


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """What is to be produced."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]


def draft_of(found: FoundRecord, account: Account, letter_id: str, *, queue: str = KIND, folder: str = "") -> Draft:
    """
    Return the failed letter that *found* becomes; the same record twice has the same idempotency key.

    *folder* is where values are that were too large for their dead-letter topic.
    """
    (value, cut), headers = _value(found, folder), _home_headers(found, account)
    failed_at = account.failed_at or found.timestamp or None
    first_failed_at = min(account.first_failed_at or failed_at, failed_at) if failed_at else None
    return Draft(
        id=letter_id,
        queue=queue,
        kind=kind_of(account.topic),
        payload=value,
        content_type=_content_type(value),
        key=None if found.key is None else key_text(found.key),
        idempotency_key=f"{found.topic_id}/{found.partition}/{found.offset}",
        origin=account.origin,
        headers=tuple((name, content or b"") for name, content in headers),
        metadata=_metadata(found, account, headers, cut),
        failure=_failure(account),
        attempts=min(account.attempt or 0, _MOST_TRIES),
        failed_us=_micros(failed_at),
        first_failed_us=_micros(first_failed_at),
    )


def kind_of(topic: str) -> str:
    """Return the kind of letters that come from *topic*; any producer may have written that name into headers."""
    return KIND if topic_problem(topic) else f"{KIND}.{topic}"


def message_of(letter: Letter) -> OutgoingMessage:
    """Return *letter* as a message; a null value stays null unless an operator edited it."""
    kept = letter.metadata.get(_PART)
    kept = kept if isinstance(kept, dict) else {}
    if kept.get("cut") and letter.payload_version == 1:
        raise Reject(f"cannot send letter {letter.id!r}: its value was too large for its dead-letter topic and is only "
                     f"in {kept['cut']!r}; put it into the letter with `redrive edit`, and replay")  # fmt: skip
    nulls = set(kept.get("null_headers") or ())
    headers: list[Header] = [(n, None if at in nulls else v) for at, (n, v) in enumerate(letter.headers)]
    if "dead_letter" in kept:
        headers = once_more(headers)
    return OutgoingMessage(
        key=_key(letter, kept),
        value=None if kept.get("null") and not letter.payload else letter.payload,
        headers=[*continuing(headers, carrier_of(letter.metadata)), (LETTER_ID, letter.id.encode())],
    )


def home_of(origin: str | None) -> str:
    """Return the topic that an origin names, or nothing."""
    scheme, _, place = (origin or "").partition(":")
    return place.partition("/")[0] if scheme == KIND else ""


def partition_of(origin: str | None) -> int:
    """Return the partition that an origin names, or -1."""
    number = (origin or "").partition("/")[2].partition("@")[0]
    return int(number) if number.isascii() and number.isdigit() else -1


def _home_headers(found: FoundRecord, account: Account) -> list[Header]:
    """Return the headers to send it back with: its own, its history and the count of replays."""
    return homeward(found.headers if account.dialect == OURS.name else account.own)


def _metadata(found: FoundRecord, account: Account, headers: list[Header], cut: str) -> dict[str, Any]:
    kept: dict[str, Any] = {
        "dead_letter": f"{found.topic}/{found.partition}@{found.offset}",
        "dialect": account.dialect,
        "group": account.group,
        "attempt": account.attempt,
        "disposition": account.disposition,
        "timestamp": account.timestamp,
        "null": found.value is None,
        "cut": cut,
        "null_headers": [at for at, (_, content) in enumerate(headers) if content is None],
    }
    if found.key is not None and key_text(found.key).encode() != found.key:
        kept["key"] = b64encode(found.key).decode()
    said = {name: value for name, value in kept.items() if value not in (None, "", [], False)}
    return {_PART: said, **carrier_in(headers)}


def _value(found: FoundRecord, folder: str) -> tuple[bytes, str]:
    """Return the value and, if it is only a part, where the whole is."""
    try:
        return whole(found.topic, found.value, found.headers, folder=folder) or b"", ""
    except SourceError:
        ref = next(value or b"" for name, value in found.headers if name == REF)
        return found.value or b"", ref.decode("utf-8", "replace")


def _key(letter: Letter, kept: dict[str, Any]) -> bytes | None:
    if "key" in kept:
        return b64decode(kept["key"])
    return None if letter.key is None else letter.key.encode()


def _failure(account: Account) -> Failure:
    """Return its failure; failures of two topics are never in one group."""
    found = classify_text(account.error_type or _UNKNOWN, _reason(account), rules=_RULES)
    marks = fingerprint(found.error_type, (f"kafka:{account.topic}",), found.message)
    title = f"{account.topic}: {found.template or found.message}"
    return msgspec.structs.replace(found, fingerprint=marks.id, template=title[:_TITLE])


def _micros(ms: int | None) -> int | None:
    """Return *ms* in microseconds, None for a time that no record can have: any producer may write headers."""
    return ms * 1000 if ms is not None and 0 < ms < _LATEST_MS else None


def _reason(account: Account) -> str:
    """Return the text of its error; an error without a text left its type in that place."""
    said = "" if account.message == account.error_type else account.message
    said = "\n".join(part for part in (said, account.causes) if part)
    return said or account.disposition or "its headers do not say why"


def _content_type(value: bytes) -> str:
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return BYTES
    return JSON
