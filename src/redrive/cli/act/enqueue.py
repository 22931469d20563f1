"""`redrive enqueue`: bring a letter in from the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import AsJson
from redrive.cli.output import emit, say
from redrive.cli.session import settings_of, with_store
from redrive.cli.typed import typed
from redrive.core.letter import AfterFailure, UniqueIn
from redrive.core.letter.media import is_json
from redrive.errors import DraftError, PayloadError

if TYPE_CHECKING:
    from redrive.core.letter import Draft
    from redrive.stores.contract import Receipt, Store

_JSON = "application/json"


def _priority(name: str) -> str:
    """Return *name* if a priority is called so; the command cannot be read otherwise."""
    from redrive.drafts import priority_of

    try:
        priority_of(name)
    except DraftError as error:
        raise typer.BadParameter(str(error)) from None
    return name


def enqueue(
    ctx: typer.Context,
    kind: Annotated[str, typer.Argument(callback=typed, help="Which handler it is for.")],
    payload: Annotated[str, typer.Argument(help="JSON; @FILE reads a file, - reads standard input.")],
    *,
    queue: Annotated[str, typer.Option(callback=typed, help="The queue it waits in.")] = "default",
    key: Annotated[
        str | None,
        typer.Option(callback=typed, help="Letters with the same key keep their order in a queue declared ordered."),
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(callback=typed, help="A second letter with it is a duplicate.")
    ] = None,
    unique_in: Annotated[
        UniqueIn, typer.Option(help="queue: the key is unique in its queue, also among letters of other kinds.")
    ] = "kind",
    priority: Annotated[str, typer.Option(callback=_priority, help="high, medium or low.")] = "medium",
    delay: Annotated[float, typer.Option(min=0, help="Seconds before it may run.")] = 0.0,
    policy: Annotated[str | None, typer.Option(help="A retry policy of its own, such as linear:step=5.")] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(help="The id of a letter that must be delivered first; may be given several times."),
    ] = None,
    after_failure: Annotated[
        AfterFailure, typer.Option(help="What it does when one of them is dead: wait, run or fail.")
    ] = "wait",
    metadata: Annotated[
        list[str] | None,
        typer.Option("--meta", metavar="NAME=VALUE", help="Metadata of the letter; may be given several times."),
    ] = None,
    tenant: Annotated[str | None, typer.Option(callback=typed, help="The tenant whose letter it is.")] = None,
    content_type: Annotated[str, typer.Option(callback=typed, help="The content type of the payload.")] = _JSON,
    as_json: AsJson = False,
) -> None:
    """Enqueue a letter. It is durable when the command returns."""
    from redrive.drafts import make_draft
    from redrive.signals.tracing import open_tracing

    draft = make_draft(
        kind,
        payload_bytes(payload, content_type),
        _default_queue,
        content_type=content_type,
        queue=queue,
        key=key,
        idempotency_key=idempotency_key,
        unique_in=unique_in,
        priority=priority,
        delay=delay,
        policy=policy,
        after=after or (),
        after_failure=after_failure,
        metadata=_pairs([typed(pair) for pair in metadata or []]),
        tenant=tenant,
    )
    tracing = open_tracing(settings_of(ctx).tracing)
    [receipt] = with_store(ctx, lambda store: _put(tracing.watch(store) if tracing else store, draft), create=True)
    if as_json:
        return emit(receipt)
    return say(
        f"{receipt.id}{' (a duplicate: the store has it already; nothing changed)' if receipt.duplicate else ''}"
    )


async def _put(store: Store, draft: Draft) -> list[Receipt]:
    from msgspec.structs import replace

    from redrive.desk.look.ids import whole_ids

    return await store.put([replace(draft, after=tuple(await whole_ids(store, draft.after)))])


def payload_bytes(text: str, content_type: str) -> bytes:
    """Return what *text* stands for: itself, a file's content, or standard input; JSON must be valid."""
    raw = raw_bytes(text)
    if not is_json(content_type):
        return raw
    from redrive.desk.look.views import pretty_json

    compact = pretty_json(raw, indent=-1)
    if compact is None:
        raise PayloadError(
            "cannot take this payload: it is not valid JSON; quote it for the shell, such as '{\"order\": 17}', "
            "or say what it is with --content-type"
        )
    return compact


def raw_bytes(text: str) -> bytes:
    """Return the bytes that *text* stands for, also those that are no valid text."""
    if text == "-":
        return sys.stdin.buffer.read()
    if not text.startswith("@"):
        return text.encode("utf-8", "surrogateescape")
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise PayloadError(f"cannot read a payload from {text[1:]!r}: {error.strerror}") from error


def _default_queue(kind: str) -> str:
    del kind  # the command line knows no handlers
    return "default"


def _pairs(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--meta")
    return dict(pair.split("=", 1) for pair in pairs)
