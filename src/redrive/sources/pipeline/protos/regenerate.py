"""
Makes the stubs of the pipeline's messages: `python -m redrive.sources.pipeline.protos.regenerate`.

Owns how the stubs are made. Knows no message. It needs grpcio-tools 1.76: stubs of a newer one refuse protobuf 6.
"""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCE = FOLDER.parents[3]  # the protos import each other by their path from here, as Python does


def regenerate(out: Path = SOURCE) -> list[Path]:
    """Write the stubs of every proto below *out*; return their paths."""
    protos = sorted(FOLDER.glob("*.proto"))
    _protoc(protos, "python", "pyi", out=out)
    _protoc([proto for proto in protos if "\nservice " in proto.read_text()], "grpc_python", out=out)
    return sorted(path for path in (out / FOLDER.relative_to(SOURCE)).iterdir() if "_pb2" in path.name)


def _protoc(protos: list[Path], *plugins: str, out: Path) -> None:
    from grpc_tools import protoc  # noqa: PLC0415 - only developers have it

    well_known = Path(protoc.__file__).parent / "_proto"
    outputs = [f"--{plugin}_out={out}" for plugin in plugins]
    status = protoc.main(["protoc", f"-I{SOURCE}", f"-I{well_known}", *outputs, *map(str, protos)])
    if status:
        raise SystemExit(f"cannot make the stubs of {FOLDER}: protoc ended with {status}; it said why above")


if __name__ == "__main__":
    sys.stdout.writelines(f"{path.name}\n" for path in regenerate())
