"""
Which letters of a lane the commands of `redrive pipeline` mean.

Owns the options that choose letters, and the filter that they make; an error names the option. Knows no command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from redrive.sources.pipeline.protos.admin_pb2 import LetterFilter

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="The id of the node.")]
Streams = Annotated[list[str] | None, typer.Option("--stream", metavar="ID", help="Only this stream; repeatable.")]
Documents = Annotated[list[str] | None, typer.Option("--doc", metavar="ID", help="Only this document; repeatable.")]
ErrorTypes = Annotated[
    list[str] | None, typer.Option("--error", metavar="TYPE", help="Only this error type, such as TIMEOUT; repeatable.")
]
Containing = Annotated[str, typer.Option("--contains", help="Only those whose error message has this text.")]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only those from this time on: ISO 8601, or 2h, 3d ago.")
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only those before this time: ISO 8601, or 2h, 3d ago.")
]
Everything = Annotated[bool, typer.Option("--all", help="All of them; needed where there is no filter.")]


def filter_message(
    streams: list[str] | None, documents: list[str] | None, errors: list[str] | None, contains: str,
    since: str | None, until: str | None, *, everything: bool = False,
) -> LetterFilter:  # fmt: skip
    """Return what these options choose."""
    from redrive.cli.kafka.options import moment_of
    from redrive.sources.pipeline.protos.admin_pb2 import LetterFilter

    found = LetterFilter(
        stream_ids=streams, doc_ids=documents, error_types=errors, error_contains=contains, all=everything
    )
    if (after := moment_of(since)) is not None:
        found.failed_after.FromMilliseconds(after)
    if (before := moment_of(until)) is not None:
        found.failed_before.FromMilliseconds(before)
    return found
