"""
The queue of failed workflows: `from redrive.workflow import DeadLetterQueue, RetryPolicy`.

Owns nothing but the names, and that the stores behind URLs can be opened. `redrive.sources.workflow` says what it
promises.
"""

from redrive.sources.workflow import (
    DeadLetterQueue,
    DeadLetterStatus,
    DLQIntegration,
    DLQIntegrationStrategy,
    ErrorCategory,
    FailedTask,
    RetryPolicy,
    create_dlq_integration,
)
from redrive.sources.workflow import port as _port
from redrive.wiring import open_home

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

_port.fill(open_home)
