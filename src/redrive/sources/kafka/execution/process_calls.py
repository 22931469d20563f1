"""
Records across a process boundary.

Owns how a record travels to a worker process as a letter, and how the worker is called there. The process engine
finds functions by name. A worker's name in this module is its own address in hex, so that the child finds the worker
wrapped to take a letter; for a factory, the name holds the whole factory. Knows no retries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from redrive.core.letter import BYTES, Letter
from redrive.engine.import_names import address_of, find
from redrive.sources.kafka.execution.worker_factory import WorkerFactory
from redrive.sources.kafka.records.record import Assignment, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    Worker = Callable[[Any], Any] | WorkerFactory

_PREFIX, _OF_BATCHES = "worker_", "batch_"
_MADE = "made_"  # after either: a factory follows instead of an address
_Parts = tuple[
    str, int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int, int, int
]  # fmt: skip
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Parts).decode
_decode_many = msgspec.msgpack.Decoder(list[_Parts]).decode


def letter_of(record: Record) -> Letter:
    """Return *record* as a letter whose payload is the whole record."""
    return Letter(_name(record), record.topic, "kafka", _encode(_parts(record)), BYTES)


def batch_letter_of(records: list[Record]) -> Letter:
    """Return *records* as one letter."""
    payload = _encode([_parts(record) for record in records])
    return Letter(_name(records[0]), records[0].topic, "kafka", payload, BYTES)


def record_of(letter: Letter) -> Record:
    """Return the record that *letter* carries."""
    return _record(_decode(letter.payload))


def records_of(letter: Letter) -> list[Record]:
    """Return the records that *letter* carries."""
    return [_record(parts) for parts in _decode_many(letter.payload)]


def _name(record: Record) -> str:
    owner = record.assignment
    return f"{owner.topic}/{owner.partition}/{record.offset}"


def _parts(record: Record) -> _Parts:
    owner = record.assignment  # read directly: the record's properties would cost more than all the rest
    return (
        owner.topic, owner.partition, owner.epoch, record.offset, record.key, record.value,
        tuple(record.headers), record.timestamp, record.timestamp_type, record.attempts,
    )  # fmt: skip


def _record(parts: _Parts) -> Record:
    topic, partition, epoch, offset, key, value, headers, stamp, kind, attempts = parts
    owner = Assignment(topic, partition, epoch)
    return Record(owner, offset, key, value, headers, stamp, kind, attempts=attempts)


def wrapped(worker: Worker) -> Callable[[Letter], Any]:
    """Return *worker* as a function of a letter that another process finds by name."""
    return _wrap(worker, f"{_PREFIX}{_spelled(worker)}")


def wrapped_batch(worker: Worker) -> Callable[[Letter], Any]:
    """Do the same for a *worker* that takes a list of records."""
    return _wrap_batch(worker, f"{_OF_BATCHES}{_spelled(worker)}")


def __getattr__(name: str) -> Any:
    """Find the worker whose address *name* holds."""
    if name.startswith(_OF_BATCHES):
        return _wrap_batch(_found(name.removeprefix(_OF_BATCHES)), name)
    if not name.startswith(_PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _wrap(_found(name.removeprefix(_PREFIX)), name)


def _spelled(worker: Worker) -> str:
    if isinstance(worker, WorkerFactory):
        return f"{_MADE}{worker.text.encode().hex()}"
    return address_of(worker).encode().hex()


def _found(spelled: str) -> Any:
    """Return the worker that *spelled* names; a factory makes a new one with each call."""
    text = bytes.fromhex(spelled.removeprefix(_MADE)).decode()
    return WorkerFactory.read(text).make() if spelled.startswith(_MADE) else find(text)


def _wrap(worker: Any, name: str) -> Callable[[Letter], Any]:
    def call(letter: Letter) -> Any:
        return worker(record_of(letter))

    call.__name__ = call.__qualname__ = name
    return call


def _wrap_batch(worker: Any, name: str) -> Callable[[Letter], Any]:
    def call(letter: Letter) -> Any:
        return worker(records_of(letter))

    call.__name__ = call.__qualname__ = name
    return call
