"""The stubs in the package are those that grpcio-tools makes of the protos."""

from __future__ import annotations

from redrive.sources.pipeline.protos.regenerate import FOLDER, regenerate


def test_the_stubs_are_current(tmp_path):
    made = {path.name: path.read_bytes() for path in regenerate(tmp_path)}
    kept = {path.name: path.read_bytes() for path in FOLDER.iterdir() if "_pb2" in path.name}
    assert sorted(made) == sorted(kept)
    out_of_date = [name for name in made if made[name] != kept[name]]
    assert out_of_date == [], "run: python -m redrive.sources.pipeline.protos.regenerate"


def test_stubs_load_on_the_oldest_protobuf_that_is_allowed():
    assert "# Protobuf Python Version: 6.31.1" in (FOLDER / "document_pb2.py").read_text()
