"""
What is wrong with a graph.

Owns the form of a problem: where it is, what it is, and whether the graph may run with it; and of a condition that
came to no answer for a document. Knows no rule.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class GraphProblem(Struct, frozen=True):
    """One thing to repair, or to know about if *level* is "warning"."""

    where: str  # "node embed", "edge parse->embed", "graph"
    key: str  # what to change, such as "dlq.max_retries"; empty: the whole thing
    message: str  # what is wrong, and the way out
    level: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        """Return it as one line."""
        place = f"{self.where}, {self.key}" if self.key else self.where
        return f"{place}: {self.message}"


class Undecided(Struct, frozen=True):
    """A condition that came to no answer for a document, and why."""

    where: str  # "node embed", "edge parse->embed"
    condition: str
    reason: str


def errors(problems: list[GraphProblem]) -> list[GraphProblem]:
    """Return those with which the graph cannot run."""
    return [problem for problem in problems if problem.level == "error"]
