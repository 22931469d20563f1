"""
The three modules of graph.yaml: `python modules.py parse`, `summarise` or `index` serves one of them.

A document that is no text is rejected: its history says so, and it goes on to the next node as it was.
"""

import asyncio
import sys

from redrive import Reject
from redrive.sources.pipeline import module
from redrive.sources.pipeline.protos.document_pb2 import PipeDoc


async def parse(document: PipeDoc) -> PipeDoc:
    """Count the words."""
    document.data["words"] = 0
    try:
        document.data["words"] = len(document.body.decode().split())
    except UnicodeDecodeError:
        raise Reject("it is no text") from None
    return document


async def summarise(document: PipeDoc) -> PipeDoc:
    """Keep the first three words."""
    document.data["summary"] = " ".join(document.body.decode().split()[:3])
    return document


async def index(document: PipeDoc) -> PipeDoc:
    """Say what it is searched by."""
    document.attributes["title"] = document.filename or document.doc_id
    return document


PORTS = {parse: 50951, summarise: 50952, index: 50953}

if __name__ == "__main__":
    function = next(each for each in PORTS if each.__name__ == sys.argv[1])
    asyncio.run(module(function).serve(f"localhost:{PORTS[function]}"))
