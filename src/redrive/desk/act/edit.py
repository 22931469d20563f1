"""
Change the payload of one letter.

Owns what an editor is shown, what it may hand back, and the diff. A write is one compare-and-set
on the payload's version: an editor that read an older version is refused, and only the edited payload is
ever sent. Knows no editor and no terminal.
"""

from __future__ import annotations

import asyncio
import difflib
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from redrive.core.letter.media import is_json
from redrive.core.moves import check_edit
from redrive.desk.look.inspect import show
from redrive.desk.look.views import pretty_json
from redrive.errors import MoveRefused, PayloadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redrive.core.letter import Letter
    from redrive.stores.contract import Store

_HEX_WIDTH = 32
_DIFF_LINES = 400
_DIFF_BYTES = 1 << 20
_CONTEXT = 3  # lines around a change
_COMPARED = 500  # lines that are compared one by one: the time for it grows faster than their square


class Form(StrEnum):
    """How a payload is written in an editor."""

    JSON = "json"
    TEXT = "text"
    HEX = "hex"


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """A payload made ready for an editor."""

    text: str
    form: Form


class EditedLetter(msgspec.Struct, frozen=True, kw_only=True):
    """What an edit came to."""

    id: str
    payload_version: int
    diff: str


async def edit(
    store: Store,
    letter_id: str,
    payload: bytes,
    *,
    version: int,
    by: str,
    reason: str = "",
    content_type: str | None = None,
) -> EditedLetter:
    """
    Replace the payload of *letter_id*, which was read as *version*.

    Raise LetterNotFound; EditConflict if the payload changed since it was read; MoveRefused if the
    letter's status does not allow it or nothing would change; PayloadError if the letter says that
    it is JSON and *payload* is not. In all these cases nothing is written.
    """
    before = await show(store, letter_id)
    target = content_type or before.content_type
    check_edit(before.id, before.status, before.payload_version, version)
    if is_json(target):
        _check_json(letter_id, payload)
    if payload == before.payload and target == before.content_type:
        message = f"cannot edit letter {letter_id!r}: its payload is unchanged, so nothing was written"
        raise MoveRefused(message)
    after = await store.edit(before.id, payload, target, version=version, by=by, reason=reason)
    # Bounded, and in a thread: a worker in the same process keeps up its heartbeats.
    told = await asyncio.to_thread(diff, before, after)
    return EditedLetter(id=before.id, payload_version=after.payload_version, diff=told)


def sheet_for(letter: Letter) -> Sheet:
    """Return the payload as an editor shows it: indented JSON, plain text, or lines of hex."""
    pretty = pretty_json(letter.payload) if is_json(letter.content_type) else None
    if pretty is not None:
        return Sheet(text=pretty.decode("utf-8") + "\n", form=Form.JSON)
    text = _plain_text(letter.payload)
    if text is not None and not is_json(letter.content_type):
        return Sheet(text=text, form=Form.TEXT)
    return Sheet(text=_hex(letter.payload), form=Form.HEX)


def payload_from(letter: Letter, sheet: Sheet) -> bytes:
    """
    Return the bytes that an edited *sheet* stands for.

    JSON that only differs in layout from what is kept comes back as the kept bytes.
    Raise PayloadError if the text is not what its form says.
    """
    if sheet.form is Form.TEXT:
        return _without_added_newline(letter, sheet.text.encode("utf-8"))
    if sheet.form is Form.HEX:
        return _from_hex(letter.id, sheet.text)
    text = sheet.text.encode("utf-8", "surrogatepass")
    _check_json(letter.id, text)
    compact = msgspec.json.format(text, indent=-1)
    return letter.payload if compact == pretty_json(letter.payload, indent=-1) else compact


def diff(before: Letter, after: Letter) -> str:
    """Return what changed as a unified diff of indented JSON, text or hex; long ones are cut and say so."""
    sizes = len(before.payload), len(after.payload)
    if max(sizes) > _DIFF_BYTES:  # comparing it would take longer than an operator waits
        return f"… too large to compare: {sizes[0]:,} bytes before, {sizes[1]:,} bytes after"
    old, new = sheet_for(before).text.splitlines(), sheet_for(after).text.splitlines()
    names = f"version {before.payload_version}", f"version {after.payload_version}"
    lines = list(_compared(old, new, names))
    if len(lines) > _DIFF_LINES:
        lines = [*lines[:_DIFF_LINES], f"… {len(lines) - _DIFF_LINES} more lines"]
    return "\n".join(lines)


def _compared(old: list[str], new: list[str], names: tuple[str, str]) -> Iterator[str]:
    """Compare what stands between the common beginning and end; if that is long, set it one below the other."""
    if old == new:
        return
    yield from (f"--- {names[0]}", f"+++ {names[1]}")
    head = _same(old, new)
    tail = _same(old[head:][::-1], new[head:][::-1])
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    if max(len(gone), len(come)) > _COMPARED:
        yield from _one_below_the_other(gone, come, head)
    else:
        start, kept = max(0, head - _CONTEXT), max(0, tail - _CONTEXT)
        yield from _hunks(old[start : len(old) - kept], new[start : len(new) - kept], start)


def _hunks(old: list[str], new: list[str], start: int) -> Iterator[str]:
    """Yield a unified diff of lines that begin at place *start* of their texts."""
    for group in difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT):
        (_, i, _, j, _), (_, _, i_end, _, j_end) = group[0], group[-1]
        yield f"@@ -{start + i + 1},{i_end - i} +{start + j + 1},{j_end - j} @@"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (f" {line}" for line in old[i1:i2])
            else:
                yield from (f"-{line}" for line in old[i1:i2])
                yield from (f"+{line}" for line in new[j1:j2])


def _same(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines are the same from the beginning on."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _one_below_the_other(gone: list[str], come: list[str], start: int) -> Iterator[str]:
    """Yield all that went, then all that came: finding the lines they share would take too long."""
    yield f"@@ -{start + 1},{len(gone)} +{start + 1},{len(come)} @@ too much to compare line by line"
    room = _DIFF_LINES // 2 - 3
    for sign, lines in (("-", gone), ("+", come)):
        yield from (f"{sign}{text}" for text in lines[:room])
        if len(lines) > room:
            yield f"{sign}… {len(lines) - room} more lines"


def _check_json(letter_id: str, payload: bytes) -> None:
    try:
        msgspec.json.format(payload).decode("utf-8")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"cannot edit letter {letter_id!r}: the new payload is not valid JSON ({error}); nothing was written"
        raise PayloadError(message) from error
    except RecursionError as error:
        message = f"cannot edit letter {letter_id!r}: the new payload is nested too deeply; nothing was written"
        raise PayloadError(message) from error


def _plain_text(payload: bytes) -> str | None:
    """Return *payload* as text, if an editor would hand it back byte by byte."""
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if all(char.isprintable() or char in "\n\t" for char in text) else None


def _without_added_newline(letter: Letter, text: bytes) -> bytes:
    """Undo what most editors do to a last line that has no end."""
    return text if letter.payload.endswith(b"\n") else text.removesuffix(b"\n")


def _hex(payload: bytes) -> str:
    chunks = (payload[at : at + _HEX_WIDTH] for at in range(0, len(payload), _HEX_WIDTH))
    return "".join(chunk.hex(" ") + "\n" for chunk in chunks)


def _from_hex(letter_id: str, text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        message = (
            f"cannot edit letter {letter_id!r}: the text is not pairs of hex digits ({error}); nothing was written"
        )
        raise PayloadError(message) from error
