"""
Messages of the admin service, for people and as JSON.

Owns the columns and lines of the operators' commands. Knows no command.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from google.protobuf.timestamp_pb2 import Timestamp


UNKNOWN = "-"


def as_values(message: Any) -> dict[str, Any]:
    """Return *message* as JSON values, with its own names, zeros included; what is not known is null."""
    from google.protobuf.json_format import MessageToDict

    found: dict[str, Any] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    _add_nulls(message, found)
    return found


def _add_nulls(message: Any, values: dict[str, Any]) -> None:
    """Add the absent fields that may be absent, except messages, to *values* and to all statuses in it."""
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and field.message_type is None and field.name not in values:
            values[field.name] = None
    for name in ("nodes", "edges"):
        for each, inner in zip(getattr(message, name, ()), values.get(name, ()), strict=True):
            _add_nulls(each, inner)


def known(message: Any, field: str) -> Any:
    """Return the value of *field*, None if it is absent: what only an engine counts, and none was asked."""
    return getattr(message, field) if message.HasField(field) else None


def _shown(message: Any, field: str) -> object:
    value = known(message, field)
    return UNKNOWN if value is None else value


def node_rows(
    nodes: Iterable[Any], per_second: Mapping[str, float] | None = None
) -> tuple[list[str], list[list[object]]]:
    """Return the table of nodes; *per_second* are their rates, those of the last minute if it is absent."""
    from redrive.sources.pipeline.protos.admin_pb2 import NodeState

    columns = ["node", "state", "waiting", "in", "out", "per s", "failures", "retries", "dlq", "quarantine",
               "oldest dead"]  # fmt: skip
    rows: list[list[object]] = [
        [
            each.node_id, NodeState.Name(each.state).removeprefix("NODE_STATE_").lower() if each.state else UNKNOWN,
            each.depth, _shown(each, "documents_in"), _shown(each, "documents_out"), _rate(each, per_second),
            _shown(each, "logical_failures"), _shown(each, "retries"), each.dlq_depth, each.quarantine_depth,
            _moment(each.oldest_dead_letter) if each.HasField("oldest_dead_letter") else "",
        ]
        for each in nodes
    ]  # fmt: skip
    return columns, rows


def node_notes(nodes: Iterable[Any]) -> Iterator[str]:
    """Yield why nodes stand still, and where to find why documents are in quarantine."""
    for each in nodes:
        if each.reason:
            yield f"{each.node_id}: {each.reason}"
        if each.quarantine_depth:
            look = f"`redrive pipeline peek {each.node_id} --quarantine` shows why, `readmit` sends them back"
            yield f"{each.node_id}: {each.quarantine_depth} in quarantine; {look}"


def _rate(node: Any, per_second: Mapping[str, float] | None) -> str:
    rate = known(node, "rate") if per_second is None else per_second.get(node.node_id)
    return UNKNOWN if rate is None else f"{rate:.1f}"


def letter_rows(letters: Iterable[Any]) -> tuple[list[str], list[list[object]]]:
    """Return the table of letters."""
    columns = ["stream", "failed", "error", "calls", "replays", "message"]
    rows: list[list[object]] = [
        [
            each.message.stream.stream_id or f"{each.partition}@{each.offset}", _moment(each.message.failed_at),
            each.message.error_type, each.message.retry_count, each.message.dlq_reprocess_count,
            each.message.error_message,
        ]
        for each in letters
    ]  # fmt: skip
    return columns, rows


def branch_lines(branches: Iterable[Any]) -> Iterator[str]:
    """Yield what is known of a document: every step once, then every place."""
    from redrive.sources.pipeline.protos.document_pb2 import StepStatus

    found = list(branches)
    steps = {(step.hop_number, step.node_id, step.branch): step for each in found for step in each.history}
    for _, step in sorted(steps.items()):
        status = StepStatus.Name(step.status).removeprefix("STEP_STATUS_").lower()
        why = f" ({step.error_info.error_code or step.error_info.error_message})" if step.HasField("error_info") else ""
        yield f"{_exact(step.end_time)}  step {step.hop_number} {step.node_id}: {status}{why}"
    for each in found:
        yield f"{_exact(each.at)}  {_place(each)}"


def _place(each: Any) -> str:
    from redrive.sources.pipeline.protos.admin_pb2 import Lane

    lane = Lane.Name(each.lane).removeprefix("LANE_").lower()
    branch = f" [{each.place.branch}]" if each.place.branch else ""
    why = f", {each.error_type}: {each.error_message}" if each.error_type else ""
    on = f"; it would go to {', '.join(each.next_node_ids)}" if each.next_node_ids else ""
    tense, at = "was" if each.past else "is", f"{each.place.topic}/{each.partition}@{each.offset}"
    return f"{tense} in {lane} of {each.place.node_id}{branch} at {at}{why}{on}"


def _moment(at: Timestamp) -> datetime:
    return at.ToDatetime(tzinfo=UTC)


def _exact(at: Timestamp) -> str:
    """Return *at* to the millisecond: steps of one document are often within a second."""
    return at.ToDatetime(tzinfo=UTC).isoformat(" ", "milliseconds").replace("+00:00", "Z")
