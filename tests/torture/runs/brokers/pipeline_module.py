"""
A module in a process of its own, which dies: `python -m … PORT HEALED`.

Some documents fail logically, some are refused once; until the file HEALED exists, some are refused as if the module
were down, and some as wrong input. Most are content.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import grpc
from tests.sources.pipeline.modules.scripted import ScriptedModule, passed_on

from redrive.sources.pipeline.protos.module_pb2 import ProcessDataResponse


def is_refused(number: int, node: str) -> bool:
    """Whether it fails logically: its history says so, and it goes on."""
    return number % 10 == 3 and node == "right"


def is_dead(number: int, node: str) -> bool:
    """Whether every call fails until the modules are healed."""
    return number % 20 == 9 and node == "join"


def is_bad_input(number: int, node: str) -> bool:
    """Whether it goes to quarantine until the modules are healed."""
    return number % 20 == 11 and node == "left"


async def main(port: int, healed: Path) -> None:
    async def script(request, context):
        number, node = int(request.document.doc_id.rpartition("-")[2]), request.metadata.pipe_step_name
        if is_refused(number, node):
            return ProcessDataResponse(success=False, error_message="it is no PDF")
        if (is_dead(number, node) or is_bad_input(number, node)) and not healed.exists():  # noqa: ASYNC240 - a look at a file
            code = grpc.StatusCode.UNAVAILABLE if is_dead(number, node) else grpc.StatusCode.INVALID_ARGUMENT
            await context.abort(code, "not yet")
        if number % 10 == 7 and request.metadata.call == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        return passed_on(request)

    await ScriptedModule(script).start(port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
