"""`redrive pipeline reload`: let a running engine read its graph again."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from redrive.cli.options import AsJson, By
from redrive.cli.output import emit, say
from redrive.cli.pipeline.extra import needs_pipeline
from redrive.cli.pipeline.operate.asking import DEFAULT_ENGINE, EngineOption, asked
from redrive.cli.session import author


@needs_pipeline
def reload(
    ctx: typer.Context, *, engine: EngineOption = DEFAULT_ENGINE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    by: By = "", as_json: AsJson = False,
) -> None:  # fmt: skip
    """Let an engine read its graph again; exit code 1 if the new graph cannot run, and the old one goes on."""
    from redrive.cli.pipeline.operate.shown import as_values
    from redrive.sources.pipeline.protos.admin_pb2 import ReloadRequest

    request = ReloadRequest(actor=author(ctx, by), dry_run=dry_run)
    found = asked(ctx, None, engine, None, lambda desk: desk.reload(request))
    if as_json:
        emit(as_values(found))
    else:
        _tell(found)
    if found.problems:
        raise typer.Exit(1)


def _tell(found: Any) -> None:
    for problem in found.problems:
        say(f"error: {problem}")
    if found.problems:
        return say(f"the graph goes on as version {found.old_version}")
    for word, names in (
        ("new", found.added_node_ids), ("changed", found.changed_node_ids), ("removed", found.removed_node_ids),
    ):  # fmt: skip
        if names:
            say(f"{word}: {', '.join(names)}")
    return say(f"version {found.old_version} → {found.new_version}")
