"""
What a sender says, turned into a draft.

Owns the options of a letter and how each is read: payload, ids, headers, due time, priority, policy. The application,
the outbox and the command line all make their drafts here. An iterable option is read once, because a generator
cannot be read twice. `core/checks/drafts.py` says what a draft may hold; this file refuses only what cannot be read.
Knows no store.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import UUID

import msgspec

from redrive.core.checks.drafts import a_type, is_deep, is_header, no_letter, shown
from redrive.core.checks.finite import check_finite
from redrive.core.failures.describe import clean
from redrive.core.letter import BYTES, JSON, AfterFailure, Draft, Priority, UniqueIn, micros
from redrive.core.policy import RetryPolicy
from redrive.engine.clock import new_id
from redrive.errors import DraftError, PayloadError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_UNWRITABLE = (msgspec.MsgspecError, TypeError, ValueError, RecursionError)
_DEPTH = 50  # steps on the way to what cannot be written
_NAME = 40  # characters of a name in a path
_LISTS = (tuple, list)  # what needs no look at abstract classes


class DraftOptions(TypedDict, total=False):
    """What a sender may say about a letter."""

    key: str | None  # letters with the same key keep their order in a queue declared ordered
    idempotency_key: str | None  # a second letter with it, in the same queue and of the same kind, is a duplicate
    unique_in: UniqueIn  # queue: … also of another kind, if that letter's key is unique in the queue too
    delay: float  # seconds from now on
    due_at: datetime | None  # not before this instant; wins over delay
    priority: Priority | str  # high, medium or low
    queue: str | None  # the queue of the kind's handler if not given
    policy: RetryPolicy | str | None  # a retry policy of its own
    after: Iterable[str | UUID]  # ids of letters that must be delivered first
    after_failure: AfterFailure  # when one of them is dead: wait on (the default), run all the same, or fail too
    metadata: Mapping[str, Any] | None  # plain data for people and queries
    headers: Iterable[tuple[str, bytes]]
    tenant: str | None  # whose letter it is
    origin: str | None  # where it comes from
    generation: int | None  # only workers of this generation run it
    id: str | UUID | None  # a UUID; a new one if not given
    content_type: str | None  # what the bytes of a payload are; only for bytes


def make_draft(
    kind: str,
    payload: Any,
    queue_of: Callable[[str], str],
    *,
    key: str | None = None,
    idempotency_key: str | None = None,
    delay: float = 0.0,
    due_at: datetime | None = None,
    priority: Priority | str = Priority.MEDIUM,
    queue: str | None = None,
    policy: RetryPolicy | str | None = None,
    after: Iterable[str | UUID] = (),
    metadata: Mapping[str, Any] | None = None,
    headers: Iterable[tuple[str, bytes]] = (),
    tenant: str | None = None,
    origin: str | None = None,
    generation: int | None = None,
    id: str | UUID | None = None,  # noqa: A002 - the letter's own word
    content_type: str | None = None,
    unique_in: UniqueIn = "kind",
    after_failure: AfterFailure = "wait",
) -> Draft:
    """
    Return a letter to be; its options are those of `DraftOptions`.

    *queue_of* names the queue of a kind for which no queue is given.
    """
    media, body = encode(payload, kind) if content_type is None else encoded(payload, kind, content_type)
    draft = Draft(
        new_id() if id is None else uuid_of(id),  # by place: by name it takes four times as long
        queue_of(kind) if queue is None or queue == "" else text_of(queue),
        kind if type(kind) is str else text_of(kind),
        body,
        media,
        key if key is None or type(key) is str else text_of(key),
        None if idempotency_key is None else text_of(idempotency_key),
        priority if type(priority) is Priority else priority_of(priority),
        0.0 if delay == 0 else span_of(delay),
        None if due_at is None else due_of(due_at),
        None if policy is None else policy_text(policy),
        generation,
        None if origin is None else text_of(origin),
        None,  # handler
        None if tenant is None else text_of(tenant),
        () if headers == () else headers_of(headers, kind),
        {} if metadata is None else metadata_of(metadata, kind),
        () if after == () else ids_of(after, kind),
        unique_in if type(unique_in) is str else text_of(unique_in),
    )
    return draft if after_failure == "wait" else msgspec.structs.replace(draft, after_failure=after_failure)


def encoded(payload: Any, kind: str, content_type: str) -> tuple[str, bytes]:
    """Return *content_type* and the bytes that the sender encoded; raise DraftError for a payload that is no bytes."""
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise DraftError(
            f"{no_letter(kind)}: content_type says what bytes are, and the payload is {a_type(payload)}; "
            "give bytes, or leave content_type out"
        )
    if not isinstance(content_type, str) or not content_type:
        raise DraftError(f"{no_letter(kind)}: content_type is {shown(content_type)} and must be text")
    return str.__str__(content_type), bytes(payload)


def encode(payload: Any, kind: str) -> tuple[str, bytes]:
    """Return content type and bytes of *payload*: bytes as they are, anything else as JSON."""
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return BYTES, bytes(payload)
    try:
        body = _encode_json(payload)
        plain = msgspec.to_builtins(payload, enc_hook=_foreign) if b"null" in body else None  # as which NaN is written
    except _UNWRITABLE as error:
        raise PayloadError(
            f"cannot write the payload of a {kind!r} letter as JSON: {_culprit(payload, error)}; "
            "give plain data, a dataclass, a msgspec Struct, a pydantic model, or bytes"
        ) from None  # their words may show the value
    if plain is not None:
        check_finite(plain, f"the payload of a {kind!r} letter")
    return JSON, body


def _culprit(value: Any, error: Exception) -> str:
    """Return the type and the place of what cannot be written; never its value."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply, or holds itself"
    path = "$"
    for _ in range(_DEPTH):
        step = next(((name, inner) for name, inner in _parts(value) if not _is_writable(inner)), None)
        if step is None:
            break
        path, value = path + step[0], step[1]
    return f"{type(error).__name__} at {path}: {_why(value, error)}"


def _why(value: Any, error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "text with a lone surrogate has no form in JSON"
    if type(value) is dict:
        return f"a dict with keys of type {_types(value)} has no form in JSON"
    return f"a value of type {type(value).__name__} has no form in JSON"


def _types(keys: Iterable[object]) -> str:
    return ", ".join(sorted({type(key).__name__ for key in keys}))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what *value* is made of, each with its step in a path."""
    if type(value) is dict:
        yield from ((f".{clean(str(name), _NAME)}", inner) for name, inner in value.items() if isinstance(name, str))
    elif type(value) in (list, tuple):
        yield from ((f"[{at}]", inner) for at, inner in enumerate(value))
    elif type(value) in (set, frozenset):
        yield from (("{…}", inner) for inner in value)
    elif isinstance(value, msgspec.Struct) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        names = value.__struct_fields__ if isinstance(value, msgspec.Struct) else value.__dataclass_fields__
        yield from ((f".{name}", getattr(value, name, None)) for name in names)


def _is_writable(value: Any) -> bool:
    try:
        _encode_json(value)
    except _UNWRITABLE:
        return False
    return True


def _foreign(value: Any) -> Any:
    """Encode what msgspec does not know: pydantic models."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(type(value).__name__)
    return dump(mode="json")


_encode_json = msgspec.json.Encoder(enc_hook=_foreign).encode


def text_of(given: Any) -> Any:
    """Return exactly a str for a kind of text, such as a StrEnum; the draft itself refuses what is none."""
    return str.__str__(given) if isinstance(given, str) else given


def span_of(delay: Any) -> Any:
    """Return a delay as seconds from now on; the draft itself refuses what is none."""
    if isinstance(delay, bool) or not isinstance(delay, (int, float)):
        return delay
    try:
        seconds = float(delay)
    except OverflowError:
        return delay
    return 0.0 if seconds < 0 else seconds


def due_of(moment: Any) -> int:
    """Return the microsecond of an aware datetime; raise DraftError for what is none."""
    if not isinstance(moment, datetime):
        raise DraftError(
            f"cannot make a letter: due_at is {shown(moment)} and must be an aware datetime, such as "
            "datetime.now(UTC); a span from now is delay, in seconds"
        )
    return micros(moment)


def uuid_of(given: str | UUID) -> str:
    """Return a letter's id as every store writes it; raise DraftError for what is none."""
    try:
        return str(given if isinstance(given, UUID) else UUID(given))
    except (ValueError, AttributeError, TypeError):
        raise DraftError(
            f"cannot use {str(given)[:40]!r} as a letter's id: it must be a UUID; "
            "give a name of your own as idempotency_key"
        ) from None


def ids_of(given: Iterable[str | UUID], kind: str) -> tuple[str, ...]:
    """Return the ids that a letter waits for, gone through once; raise DraftError for what are none."""
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise DraftError(f"{no_letter(kind)}: after is {shown(given)} and must be a list of ids, such as [receipt.id]")
    ids = tuple(given)
    for each in ids:
        if not isinstance(each, (str, UUID)):
            raise DraftError(
                f"{no_letter(kind)}: after holds a value of type {type(each).__name__}, which is no id; "
                "give a list such as [receipt.id]"
            )
    return tuple(str.__str__(each) if isinstance(each, str) else str(each) for each in ids)


def headers_of(given: Iterable[tuple[str, bytes]], kind: str) -> tuple[tuple[str, bytes], ...]:
    """Return the headers, gone through once; refused at the door is better than unreadable later."""
    if isinstance(given, (Mapping, str, bytes)) or not isinstance(given, Iterable):
        raise DraftError(
            f"{no_letter(kind)}: headers is {a_type(given)}; give [(name, value), …], as a name may come twice"
        )
    pairs = tuple(tuple(pair) if isinstance(pair, list) else pair for pair in given)
    for pair in pairs:
        if not is_header(pair):
            name = pair[0] if isinstance(pair, tuple) and pair else None
            which = f"the header {shown(name)}" if isinstance(name, str) else "a header"
            raise DraftError(
                f"{no_letter(kind)}: {which} is no pair of str and bytes; give [(name, value), …] and encode each value"
            )
    return pairs


def metadata_of(given: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the metadata as plain data; raise DraftError for what JSON does not know."""
    what = f"the metadata of a {kind!r} letter"
    if not isinstance(given, Mapping):
        raise DraftError(f"{no_letter(kind)}: metadata is {a_type(given)} and must be a dict")
    try:
        plain: dict[str, Any] = msgspec.to_builtins(dict(given))
    except _UNWRITABLE as error:
        raise DraftError(f"cannot write {what} as JSON: {_culprit(dict(given), error)}; give plain data") from None
    if is_deep(plain):
        return plain  # the draft refuses it
    check_finite(plain, what)
    return plain


def drafts_of(given: Iterable[Draft]) -> tuple[Draft, ...]:
    """Return the drafts of one call, gone through once; raise DraftError for what are none."""
    if type(given) not in _LISTS and (
        isinstance(given, (Draft, str, bytes, Mapping)) or not isinstance(given, Iterable)
    ):
        raise DraftError(f"cannot enqueue many of {shown(given)}: give a list of drafts, made by app.draft(…)")
    drafts = tuple(given)
    for at, draft in enumerate(drafts):
        if type(draft) is not Draft:
            raise DraftError(f"cannot enqueue number {at}, {shown(draft)}: give drafts, made by app.draft(…)")
    return drafts


def priority_of(name: str | Priority) -> Priority:
    """Return the priority of that name; raise DraftError if there is none."""
    found = Priority.__members__.get(name.upper()) if isinstance(name, str) else None
    if found is None:
        raise DraftError(f"{shown(name)} is not a priority; use high, medium or low")
    return found


def policy_text(policy: RetryPolicy | str) -> str:
    """Return what a letter carries of *policy*; a policy of which something would be forgotten is refused."""
    if not isinstance(policy, (str, RetryPolicy)):
        raise PolicyError(
            f"cannot use {shown(policy)} as a retry policy: give a RetryPolicy, or a text such as 'never'"
        )
    if isinstance(policy, str):
        return RetryPolicy.parse(policy).text
    if policy.function is not None or RetryPolicy.parse(policy.text) != policy:
        raise PolicyError(
            f"a letter cannot carry {policy!r}: functions and lists of errors cannot be kept with it; "
            "register the function, app.backoff('NAME', function), and give 'custom:name=NAME', or give that policy to "
            "the handler"
        )
    return policy.text
