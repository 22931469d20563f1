"""
redrive: retry what can heal, dead-letter what cannot, lose nothing, replay the rest.

A user needs three names: `Redrive`, a `RetryPolicy`, and `Reject`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redrive.core.letter import Category, Draft, FailureCycle, Letter, Priority, Status
from redrive.core.policy import DEFAULT_RETRY_POLICY, RetryPolicy
from redrive.errors import RedriveError, Reject, RetryAfter, TerminalHandlerError

if TYPE_CHECKING:
    from redrive.app import Redrive
    from redrive.engine.retry import retry

__version__ = "0.1.0"

__all__ = [
    "Category",
    "DEFAULT_RETRY_POLICY",
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

_LATER = {"Redrive": "redrive.app", "retry": "redrive.engine.retry"}  # they bring half of the package along


def __getattr__(name: str) -> Any:
    """Import what is heavy when it is first asked for: the command line and worker processes start quickly."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LATER[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
