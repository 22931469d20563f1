"""`redrive edit`: change a letter's payload in an editor, with the diff shown before it is written."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from redrive.cli.act.enqueue import raw_bytes
from redrive.cli.options import AsJson, By, Reason, Yes
from redrive.cli.output import emit, note, say
from redrive.cli.session import opened
from redrive.cli.typed import typed
from redrive.core.letter.ids import short
from redrive.errors import MoveRefused, PayloadError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.core.letter import Letter
    from redrive.desk.act.edit import Sheet


def edit(
    ctx: typer.Context,
    letter_id: Annotated[str, typer.Argument(metavar="ID", callback=typed, help="The letter's id.")],
    *,
    payload: Annotated[
        str | None, typer.Option(help="The new payload instead of an editor; @FILE reads a file, - standard input.")
    ] = None,
    reason: Reason = "",
    by: By = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Change a letter's payload in $EDITOR. Refused if another operator changed it in the meantime."""
    with opened(ctx, by=by) as session:
        before = session.run(session.desk.show(letter_id))
        with _edited(before) if payload is None else nullcontext(_given(before, payload)) as changed:
            if changed == before.payload:
                raise MoveRefused(f"cannot edit letter {letter_id!r}: its payload is unchanged, so nothing was written")
            _show_and_ask(before, changed, yes=yes, as_json=as_json)
            done = session.run(session.desk.edit(letter_id, changed, version=before.payload_version, reason=reason))
    if as_json:
        return emit(done)
    return say(
        f"letter {done.id} has payload version {done.payload_version} now; `redrive replay {short(done.id)}` sends it"
    )


def _given(before: Letter, payload: str) -> bytes:
    from redrive.desk.act.edit import payload_from, sheet_for

    sheet = sheet_for(before)
    raw = raw_bytes(payload)
    if sheet.form != "json":
        return raw
    return payload_from(before, msgspec.structs.replace(sheet, text=_text(raw)))


@contextmanager
def _edited(before: Letter) -> Iterator[bytes]:
    """Give what the operator made of the payload; their text stays in its file unless all goes well with it."""
    from redrive.desk.act.edit import payload_from, sheet_for

    sheet = sheet_for(before)
    path = _opened_in_editor(sheet)
    written = path.read_bytes()
    try:
        yield payload_from(before, msgspec.structs.replace(sheet, text=_text(written)))
    except BaseException:  # also a "no", and Ctrl-C
        if written == sheet.text.encode("utf-8"):
            path.unlink()
        else:
            note(f"your text is kept in {path}")
        raise
    path.unlink()


def _opened_in_editor(sheet: Sheet) -> Path:
    """Return the file in which the operator edited *sheet*; there is none if the editor did not do its work."""
    handle, name = tempfile.mkstemp(prefix="redrive-", suffix=f".{sheet.form}")
    path = Path(name)
    with os.fdopen(handle, "wb") as file:
        file.write(sheet.text.encode("utf-8"))
    try:
        _run_editor(path)
    except PayloadError:
        path.unlink(missing_ok=True)
        raise
    return path


def _run_editor(path: Path) -> None:
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(command), str(path)], check=False).returncode  # noqa: S603 - the operator's own editor
    except OSError as error:
        raise PayloadError(f"cannot start the editor {command!r}: {error.strerror}; set EDITOR to another") from error
    if code:
        raise PayloadError(f"the editor {command!r} ended with code {code}, so nothing was written")


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PayloadError(f"cannot read the edited payload: it is not UTF-8 text ({error.reason})") from error


def _show_and_ask(before: Letter, changed: bytes, *, yes: bool, as_json: bool) -> None:
    from redrive.desk.act.edit import diff

    after = msgspec.structs.replace(before, payload=changed, payload_version=before.payload_version + 1)
    (note if as_json else say)(diff(before, after), lines=True)
    if not yes:
        typer.confirm("write this?", abort=True, err=True)
