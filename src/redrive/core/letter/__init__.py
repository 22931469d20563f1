"""What a letter is: its fields, its ids, what makes two the same, what it is counted by, what its payload is."""

from redrive.core.letter.letter import (
    BYTES,
    JSON,
    AfterFailure,
    Category,
    Draft,
    Failure,
    FailureCycle,
    Letter,
    Priority,
    Status,
    Try,
    UniqueIn,
    age_of,
    instant,
    micros,
)

__all__ = [
    "BYTES",
    "JSON",
    "AfterFailure",
    "Category",
    "Draft",
    "Failure",
    "FailureCycle",
    "Letter",
    "Priority",
    "Status",
    "Try",
    "UniqueIn",
    "age_of",
    "instant",
    "micros",
]
