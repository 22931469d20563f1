"""The pages about the pipeline say what the code says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec
import pytest
import yaml

from redrive.sources.pipeline.admin import document_verbs
from redrive.sources.pipeline.engine import arrivals
from redrive.sources.pipeline.graph import model
from redrive.sources.pipeline.graph.reading import examine
from redrive.sources.pipeline.protos import admin_pb2, document_pb2, engine_pb2, graph_pb2, module_pb2

DOCS = Path(__file__).parents[2] / "docs"
SECTIONS = {
    "Graph": model.Graph,
    "Node": model.Node,
    "dlq": model.DlqSettings,
    "breaker": model.NodeBreaker,
    "tls": model.Tls,
    "Edge": model.Edge,
    "documents": model.DocumentStorage,
}
PAGES = [
    "tutorial/pipeline.md",
    *(f"how-to/pipeline-{name}.md" for name in ("conditions", "modules", "tls", "scale-out")),
]
FILES = {
    "pipeline-protos": (document_pb2, graph_pb2, module_pb2),
    "pipeline-services": (engine_pb2, admin_pb2),
}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_of_a_graph_is_documented_and_no_other(section):
    page = (DOCS / "reference/pipeline-graph.md").read_text()
    part = page.split(f"\n## {section}\n")[1].split("\n## ")[0]
    keys = re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)
    assert sorted(keys) == sorted(field.encode_name for field in msgspec.structs.fields(SECTIONS[section]))


def graphs():
    for page in PAGES:
        for block in re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
            yield pytest.param(block, id=page)


@pytest.mark.parametrize("block", list(graphs()))
def test_every_graph_on_a_page_is_right(block):
    assert [problem for problem in examine(block).problems if problem.level == "error"] == []
    assert yaml.safe_load(block)["nodes"]


@pytest.mark.parametrize("name", FILES)
def test_every_field_of_every_message_is_documented(name):
    page = (DOCS / f"reference/{name}.md").read_text()
    for message in (message for file in FILES[name] for message in file.DESCRIPTOR.message_types_by_name.values()):
        part = page.split(f"\n### {message.name}\n")[1].split("\n### ")[0]
        missing = [field.name for field in message.fields if f"| `{field.name}` | {field.number} |" not in part]
        assert missing == [], message.name


@pytest.mark.parametrize("name", FILES)
def test_every_call_is_documented(name):
    page = (DOCS / f"reference/{name}.md").read_text()
    services = [service for file in FILES[name] for service in file.DESCRIPTOR.services_by_name.values()]
    assert services
    assert [m.name for service in services for m in service.methods if f"| `{m.name}` |" not in page] == []


def test_every_status_of_a_refused_document_is_documented():
    page = (DOCS / "reference/pipeline-services.md").read_text()
    used = set(re.findall(r'NotTaken\(\s*"(\w+)"', inspect.getsource(arrivals) + inspect.getsource(document_verbs)))
    assert used == {"INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
    assert [code for code in used if f"| `{code}` |" not in page] == []
    assert f"the engine has {arrivals.MOST} documents" in page
