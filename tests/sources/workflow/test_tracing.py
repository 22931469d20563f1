"""The workflow queue, seen by OpenTelemetry."""

from __future__ import annotations

from opentelemetry import trace
from tests.signals.otel.seen import Seen, is_child

from redrive import Redrive
from redrive.workflow import DeadLetterQueue


async def test_a_retried_workflow_runs_in_the_trace_in_which_it_failed():
    seen, inside = Seen(), []
    app = Redrive("memory://", tracing=seen.tracing)
    queue = DeadLetterQueue(store=app)

    async def run_again(task, repos):
        inside.append(trace.get_current_span().get_span_context().span_id)
        return {"status": "failed", "error": "still away"}

    with seen.tracer.start_as_current_span("workflow"):
        await queue.enqueue("wf_1", {"type": "a"}, ["repo"], ConnectionError("away"), "immediate")
    await queue.retry_task("wf_1", callback=run_again)
    enqueued, handled = seen.one("enqueue"), seen.one("handle")
    assert is_child(enqueued, seen.one("workflow"))
    assert is_child(handled, enqueued)
    assert inside == [handled.get_span_context().span_id]
    assert handled.attributes["redrive.outcome"] == "failed"
    assert {span.name for span in seen.spans()} >= {"settle workflow"}
    await queue.shutdown()
    await app.close()
