"""`redrive pipeline send`: put files into a graph. Owns how a file becomes a document; knows no node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.kafka.options import Servers, config_of
from redrive.cli.options import AsJson
from redrive.cli.output import emit, say
from redrive.cli.pipeline.check import GraphFile
from redrive.cli.pipeline.extra import needs_pipeline
from redrive.errors import SettingsError

if TYPE_CHECKING:
    from redrive.sources.pipeline.protos.document_pb2 import PipeDoc


@needs_pipeline
def send(
    graph: GraphFile,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="The documents.")],
    *,
    to: Annotated[str, typer.Option(help="The node; the graph's entry if absent.")] = "",
    type_: Annotated[str, typer.Option("--type", help="What conditions ask for; the file's suffix if absent.")] = "",
    servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Send files as documents; return when the broker has confirmed them."""
    import asyncio

    from redrive.sources.pipeline import load_graph
    from redrive.sources.pipeline.engine.sending import send_documents

    documents = [_document(path, type_) for path in files]
    sent = asyncio.run(send_documents(load_graph(graph), config_of(servers), documents, to=to))
    if as_json:
        return emit({"sent": [each._asdict() for each in sent]})
    for each in sent:
        say(f"{each.doc_id}: stream {each.stream_id} is in {each.topic}")
    return None


def _document(path: Path, kind: str) -> PipeDoc:
    from mimetypes import guess_type

    from redrive.sources.pipeline.protos.document_pb2 import PipeDoc

    try:
        body = path.read_bytes()
    except OSError as error:
        raise SettingsError([f"cannot read {str(path)!r}: {error.strerror}"]) from None
    return PipeDoc(
        doc_id=path.name, filename=path.name, type=kind or path.suffix.lstrip("."), body=body, body_size=len(body),
        media_type=guess_type(path.name)[0] or "",
    )  # fmt: skip
