"""
The queue of failed workflows: kept, classified, retried in the background.

Its users import it from `redrive.workflow`. Tasks are letters of the queue `workflow`, so every operator's verb
(`redrive ls`, `groups`, `explain`, `replay`) sees them, and this package sees and touches nothing else.

What it promises, and the tests that hold it to that (tests/sources/workflow):

- A task that was enqueued survives the process; another process sees and retries it. test_what_users_saw.py
- `max_retries` counts retries after the failure that brought the task here; the four formulas hold exactly, without
  jitter unless it is asked for. test_retry_policy_calculations.py, test_exhausted_retry_handling.py
- The same task_id again is the same task with the newer error while it waits or runs, a new cycle once it is dead, and
  a new task once it is over. test_task_enqueue_and_retrieval.py
- A task runs in the first cycle that begins at or after `next_retry_at`; a cycle runs its tasks in parallel with a
  bound; stopping leaves nothing in `retrying`. test_cycles.py, test_automatic_retry_processing.py, test_holding.py
- A killed processor loses nothing; a task whose process died keeps its policy and runs alone. test_kills.py,
  test_losses.py
- `retry_task` runs now and says what came of it. test_manual_retry_operations.py
- Statistics have every key, zeros included, over the whole queue, at a cost that does not grow with it.
  test_queue_statistics.py
- A full queue refuses loudly, and the workflow's own error always reaches its caller. test_queue_full_handling.py,
  test_integration_with_workflow_execution.py
- While a callback runs, the integration enqueues nothing: the failure belongs to the task that is retried.
  test_integration_with_workflow_execution.py
"""

from redrive.sources.workflow.integration import DLQIntegration, create_dlq_integration
from redrive.sources.workflow.policies import RetryPolicy
from redrive.sources.workflow.queue import DeadLetterQueue
from redrive.sources.workflow.types import DeadLetterStatus, DLQIntegrationStrategy, ErrorCategory, FailedTask

__all__ = [
    "DLQIntegration",
    "DLQIntegrationStrategy",
    "DeadLetterQueue",
    "DeadLetterStatus",
    "ErrorCategory",
    "FailedTask",
    "RetryPolicy",
    "create_dlq_integration",
]
