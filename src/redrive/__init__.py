"""
redrive: retry what can heal, dead-letter what cannot, lose nothing, replay the rest.

A user needs three names: `Redrive`, a `RetryPolicy`, and `Reject`.
"""

from redrive.app import Redrive
from redrive.core.letter import Category, Draft, FailureCycle, Letter, Priority, Status
from redrive.core.policy import DEFAULT_RETRY_POLICY, RetryPolicy
from redrive.engine.retry import retry
from redrive.errors import RedriveError, Reject, RetryAfter, TerminalHandlerError

__version__ = "0.1.0"

__all__ = [
    "DEFAULT_RETRY_POLICY",
    "Category",
    "Draft",
    "FailureCycle",
    "Letter",
    "Priority",
    "Redrive",
    "RedriveError",
    "Reject",
    "RetryAfter",
    "RetryPolicy",
    "Status",
    "TerminalHandlerError",
    "__version__",
    "retry",
]
