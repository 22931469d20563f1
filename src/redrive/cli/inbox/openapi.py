"""`redrive inbox openapi`: the OpenAPI document of the inbox, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from redrive.cli.inbox.options import sources_of
from redrive.cli.options import AsJson
from redrive.cli.output import emit, json_text, say
from redrive.cli.session import settings_of
from redrive.cli.typed import typed


def openapi(
    ctx: typer.Context,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", callback=typed, help="Write it to this file.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Write the OpenAPI document of the sources in the settings. A running inbox serves it at /openapi.json."""
    from importlib.metadata import version

    from redrive.sources.webhook.receiving.openapi import document

    made = document(sources_of(settings_of(ctx), None, {}), version("redrive"))
    if not output:
        return emit(made)
    Path(output).write_text(json_text(made) + "\n")
    return emit({"written": output, "paths": len(made["paths"])}) if as_json else say(f"written: {output}")
