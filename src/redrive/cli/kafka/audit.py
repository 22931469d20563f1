"""
The audit log of commands that write to Kafka.

Owns the two entries of an act: one before it begins, one with its count. They are kept in the store, if there is one.
Knows no topic.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from redrive.cli.output import note
from redrive.cli.session import absent_file, author, settings_of, with_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    import typer

    from redrive.sources.kafka.replay.replay import ReplayReport


class Audit:
    """The two audit entries of one act: that it begins, and how many letters it sent, however it ended."""

    def __init__(self, ctx: typer.Context, verb: str, target: str, by: str, reason: str) -> None:
        self._ctx, self._verb, self._target, self._reason = ctx, verb, target, reason
        self._by = author(ctx, by)
        url = settings_of(ctx).url
        self._is_kept = not url.startswith("memory:") and absent_file(url) is None

    def begin(self) -> None:
        """Write that the act begins, before anything is sent; print a note if there is no audit log."""
        if not self._is_kept:
            note("redrive: this act is not audited, because there is no store; name one with --url, "
                 "or make it with `redrive migrate`")  # fmt: skip
        self._write(f"plan {self._verb}", 0)

    @contextmanager
    def counted(self) -> Iterator[ReplayReport]:
        """Write how many letters the report counts, even if sending them failed."""
        from redrive.sources.kafka.replay.replay import ReplayReport

        report = ReplayReport()
        try:
            yield report
        finally:
            self._write(self._verb, report.replayed)

    def _write(self, verb: str, count: int) -> None:
        if self._is_kept:
            with_store(self._ctx, lambda store: store.record(self._by, verb, self._target, count, self._reason))
