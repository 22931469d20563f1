"""`redrive pipeline`: what needs no broker."""

from __future__ import annotations

import asyncio
import io
from inspect import signature

import msgspec
from rich.console import Console

from redrive.cli.pipeline import commands
from redrive.cli.pipeline.operate.shown import as_values, branch_lines, node_notes, node_rows
from redrive.cli.pipeline.operate.top import _frame, needs_a_look, rates
from redrive.cli.pipeline.run import run
from redrive.sources.pipeline.protos.admin_pb2 import (
    LANE_DLQ,
    NODE_STATE_RUNNING,
    EdgeStatus,
    ListNodesResponse,
    NodeStatus,
    TracedBranch,
)
from redrive.sources.pipeline.protos.document_pb2 import STEP_STATUS_SUCCESS, StepExecutionRecord
from redrive.sources.pipeline.protos.engine_pb2 import BranchPlace

GRAPH = """
env: prod
nodes:
  - {id: parse, module: "localhost:50051"}
  - {id: embed, module: "dns:///embedder:50051", when: 'document.type == "pdf"', dlq: {enabled: false}}
edges: [{from: parse, to: embed}]
"""


def test_a_right_graph_is_said_to_be_right_and_warnings_do_not_fail_it(redrive, tmp_path):
    (tmp_path / "graph.yaml").write_text(GRAPH)
    said = redrive("pipeline", "check", str(tmp_path / "graph.yaml")).stdout
    assert "warning: node embed, dlq.enabled: off" in said
    assert "the graph is right: 2 nodes, 1 edge, 1 warning" in said


def test_every_problem_is_listed_and_the_exit_code_says_so(redrive, tmp_path):
    (tmp_path / "graph.yaml").write_text(
        GRAPH.replace("to: embed", "to: embet").replace("document.type", "document.typ")
    )
    said = redrive("pipeline", "check", str(tmp_path / "graph.yaml"), code=1).stdout
    assert "edge parse->embet, to: there is no node 'embet'; did you mean embed?" in said
    assert "undefined field 'typ'" in said
    assert "2 errors, 1 warning; the graph cannot run" in said


def test_programs_get_the_problems_and_the_topics(redrive, tmp_path):
    (tmp_path / "graph.yaml").write_text(GRAPH)
    found = redrive.json("pipeline", "check", str(tmp_path / "graph.yaml"))
    assert found["ok"]
    assert found["nodes"] == ["parse", "embed"]
    assert {"in.prod.parse", "dlq.prod.embed", "quarantine.prod.embed", "done.prod"} <= set(found["topics"])
    assert [problem["level"] for problem in found["problems"]] == ["warning"]
    (tmp_path / "wrong.yaml").write_text("nodes: 7")
    assert not redrive.json("pipeline", "check", str(tmp_path / "wrong.yaml"), code=1)["ok"]


def test_a_graph_that_is_not_there_is_one_sentence(redrive, tmp_path):
    assert "cannot read the graph" in redrive("pipeline", "check", str(tmp_path / "no.yaml"), code=1).stderr


def test_a_graph_is_drawn_with_counts(redrive, tmp_path):
    (tmp_path / "graph.yaml").write_text(GRAPH)
    (tmp_path / "counts.json").write_text('{"nodes": [{"node_id": "embed", "dead_letters": 3}], "edges": []}')
    path = str(tmp_path / "graph.yaml")
    assert redrive("pipeline", "graph", path, "--svg").stdout.startswith("<svg ")
    redrive("pipeline", "graph", path, "--out", str(tmp_path / "g.svg"), "--counts", str(tmp_path / "counts.json"))
    assert "3 dead" in (tmp_path / "g.svg").read_text()
    assert "  -> embed" in redrive("pipeline", "graph", path).stdout
    assert redrive.json("pipeline", "graph", path)["edges"] == [{"from": "parse", "to": "embed", "when": None}]
    assert "cannot read the counts" in redrive("pipeline", "graph", path, "--svg", "--counts", path, code=1).stderr


def test_counts_come_from_a_file_or_an_engine_and_not_from_both(redrive, tmp_path):
    (tmp_path / "graph.yaml").write_text(GRAPH)
    path = str(tmp_path / "graph.yaml")
    words = ("--svg", "--counts", path, "--engine", "127.0.0.1:1")
    assert "leave --counts or --engine out" in redrive("pipeline", "graph", path, *words, code=2).stderr


def test_an_engine_that_is_not_there_is_one_sentence_for_top(redrive):
    said = redrive("pipeline", "top", "--count", "1", "--engine", "127.0.0.1:1", code=1).stderr
    assert "127.0.0.1:1" in said
    assert "Traceback" not in said


def test_every_command_has_json():
    lacking = [
        each.name for each in commands.app.registered_commands if "as_json" not in signature(each.callback).parameters
    ]
    assert len(commands.app.registered_commands) == 16
    assert lacking == []


async def test_a_watched_file_that_changes_asks_for_a_reload(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "_LOOK", 0.001)
    path, asked = tmp_path / "graph.yaml", asyncio.Event()
    path.write_text(GRAPH)
    watching = asyncio.create_task(run._watch(path, asked.set))
    try:
        await asyncio.sleep(0)  # it has looked once
        for change in (lambda: path.write_text(GRAPH + "\n"), path.unlink, lambda: path.write_text(GRAPH)):
            change()
            await asyncio.wait_for(asked.wait(), 30)
            asked.clear()
    finally:
        watching.cancel()


def test_nodes_say_why_they_stand_still_and_where_to_find_why_documents_are_in_quarantine():
    nodes = [NodeStatus(node_id="a", reason="UNIMPLEMENTED: no"), NodeStatus(node_id="b", quarantine_depth=2)]
    held, quarantined = node_notes([*nodes, NodeStatus(node_id="c", dlq_depth=1)])
    assert held == "a: UNIMPLEMENTED: no"
    assert quarantined.startswith("b: 2 in quarantine; `redrive pipeline peek b --quarantine` shows why")


def test_the_nodes_that_need_a_look_are_above_and_rates_are_since_the_last_look():
    before = ListNodesResponse(
        nodes=[NodeStatus(node_id="a", documents_in=10), NodeStatus(node_id="b", documents_in=9)]
    )
    after = ListNodesResponse(
        nodes=[
            NodeStatus(node_id="a", state=NODE_STATE_RUNNING, documents_in=30),
            NodeStatus(node_id="b", state=NODE_STATE_RUNNING, documents_in=2, dlq_depth=1),
        ]
    )
    assert rates(None, before, 2.0) == {}
    assert rates(before, after, 2.0) == {"a": 10.0, "b": 0.0}  # b's engine has restarted
    assert [needs_a_look(each) for each in after.nodes] == [False, True]
    shown = io.StringIO()
    Console(file=shown, width=120).print(_frame(after, {"a": 10.0}))
    lines = [line for line in shown.getvalue().splitlines() if "running" in line]
    assert "b: 1 dead, 0 in quarantine" in shown.getvalue()
    assert [line.strip(" │")[0] for line in lines] == ["b", "a"]


def test_what_only_an_engine_counts_is_unknown_and_not_zero_without_one():
    unasked, asked = NodeStatus(node_id="a", depth=4), NodeStatus(node_id="b", state=NODE_STATE_RUNNING)
    for field in ("documents_in", "documents_out", "logical_failures", "retries", "rate"):
        setattr(asked, field, 0)
    columns, rows = node_rows([unasked, asked])
    assert dict(zip(columns, rows[0], strict=True)) == {
        "node": "a", "state": "-", "waiting": 4, "in": "-", "out": "-", "per s": "-", "failures": "-",
        "retries": "-", "dlq": 0, "quarantine": 0, "oldest dead": "",
    }  # fmt: skip
    assert rows[1][1:8] == ["running", 0, 0, 0, "0.0", 0, 0]
    found = as_values(ListNodesResponse(nodes=[unasked, asked], edges=[EdgeStatus(edge_id="a->b")]))
    assert [(each["documents_in"], each["retries"], each["rate"]) for each in found["nodes"]] == [
        (None, None, None), ("0", "0", 0),
    ]  # fmt: skip
    assert (found["nodes"][0]["depth"], found["edges"][0]["sent"]) == ("4", None)
    assert rates(ListNodesResponse(nodes=[unasked]), ListNodesResponse(nodes=[unasked]), 1.0) == {}


def test_a_trace_says_when_each_step_ended_to_the_millisecond_and_where_the_document_is():
    step = StepExecutionRecord(hop_number=1, node_id="parse", status=STEP_STATUS_SUCCESS)
    step.end_time.FromMilliseconds(1_700_000_000_049)
    branch = TracedBranch(place=BranchPlace(topic="dlq.prod.embed", node_id="embed"), lane=LANE_DLQ, history=[step])
    branch.error_type, branch.error_message, branch.partition, branch.offset = "TIMEOUT", "no answer", 1, 7
    branch.at.FromMilliseconds(1_700_000_001_000)
    assert list(branch_lines([branch])) == [
        "2023-11-14 22:13:20.049Z  step 1 parse: success",
        "2023-11-14 22:13:21.000Z  is in dlq of embed at dlq.prod.embed/1@7, TIMEOUT: no answer",
    ]


def test_a_picture_takes_the_nodes_as_json_has_them(redrive, tmp_path):
    (tmp_path / "graph.yaml").write_text(GRAPH)
    nodes = [NodeStatus(node_id="parse", dead_letters=1200), NodeStatus(node_id="embed")]
    edges = [EdgeStatus(edge_id="parse->embed")]
    values = as_values(ListNodesResponse(nodes=nodes, edges=edges))
    (tmp_path / "counts.json").write_bytes(msgspec.json.encode(values))
    drawn = redrive(
        "pipeline", "graph", str(tmp_path / "graph.yaml"), "--svg", "--counts", str(tmp_path / "counts.json")
    )
    assert "1,200 dead" in drawn.stdout
    assert "0 documents" not in drawn.stdout
