"""When and how often to try again: the policy as a value, and its text form."""

from redrive.core.policy.problems import LONGEST
from redrive.core.policy.retry_policy import DEFAULT_RETRY_POLICY, ErrorNames, RetryPolicy

__all__ = ["DEFAULT_RETRY_POLICY", "LONGEST", "ErrorNames", "RetryPolicy"]
