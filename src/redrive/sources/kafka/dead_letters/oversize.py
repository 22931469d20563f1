"""
Dead letters that are too large for their topic.

Owns what is left out of them, in this order: our own longer headers, the record's headers, and last most of its
value. A dead letter with a cut value names where the whole value is: a file that was written first, or the source
topic. A replay sends the whole value or nothing. Knows no Kafka client.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from redrive.errors import SourceError
from redrive.sources.kafka.dead_letters.headers import NAMESPACE, PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.sources.kafka.records.dead_letter import Header
    from redrive.sources.kafka.records.record import Record

REF, HASH, SIZE = f"{NAMESPACE}payload-ref", f"{NAMESPACE}payload-sha256", f"{NAMESPACE}payload-size"
KEPT = 1024  # bytes of a value that is cut
_HEX_DIGITS = 64  # of a hash
_FILE, _TOPIC = "file:", "kafka:"
_LEAST = frozenset({*PLAIN, f"{NAMESPACE}id", f"{NAMESPACE}disposition", f"{NAMESPACE}schema", f"{NAMESPACE}replays"})


def without_ours(headers: Iterable[Header]) -> list[Header]:
    """Return the record's own headers and the indispensable ones of ours."""
    return [pair for pair in headers if not pair[0].startswith(NAMESPACE) or pair[0] in _LEAST]


def least(headers: Iterable[Header]) -> list[Header]:
    """Return the indispensable headers of ours, and none of the record's own."""
    return [pair for pair in headers if pair[0] in _LEAST]


def spilled(record: Record, folder: str) -> list[Header]:
    """Write the whole value to *folder*, durably; return the headers that point to it."""
    value = record.value or b""
    digest = sha256(value).hexdigest()
    path = Path(folder).absolute() / digest
    if not path.exists():
        _write(path, value)
    return _says(f"{_FILE}{path}", value)


def pointing(record: Record) -> list[Header]:
    """Return the headers that point to the record in the source topic, the only place of the whole value."""
    return _says(f"{_TOPIC}{record.topic}/{record.partition}@{record.offset}", record.value or b"")


def whole(place: str, value: bytes | None, headers: Iterable[Header], *, folder: str) -> bytes | None:
    """
    Return the whole value of a dead letter; raise SourceError if it was cut and the whole is not available.

    Only *folder* is read, even if the headers name another path: any producer may have written them.
    """
    said = {name: (content or b"").decode("utf-8", "replace") for name, content in headers if name in {REF, HASH}}
    if REF not in said:
        return value
    digest = said.get(HASH, "")
    path = Path(folder) / digest
    if folder and len(digest) == _HEX_DIGITS and digest.isalnum() and path.is_file():
        content = path.read_bytes()
        if sha256(content).hexdigest() == digest:
            return content
    raise SourceError(
        f"the value of {place} was too large for its topic and is only in {said[REF]!r}, so it was not sent; "
        "set dlq_spill_folder to the folder that holds it"
    )


def _says(ref: str, value: bytes) -> list[Header]:
    return [(REF, ref.encode()), (HASH, sha256(value).hexdigest().encode()), (SIZE, str(len(value)).encode())]


def _write(path: Path, value: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    with part.open("wb") as file:
        file.write(value)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
