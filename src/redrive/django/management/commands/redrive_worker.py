"""
`manage.py redrive_worker`: run the project's handlers.

Owns the command's options and where the application's name comes from; the rest is `redrive worker`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from redrive.cli import app as command_line

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):  # type: ignore[misc]  # Django ships no types
    """Run the handlers of one application until told to stop."""

    help = "Run an application's handlers until told to stop: SIGTERM drains, a second one stops now."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take what `redrive worker` takes."""
        parser.add_argument("app", nargs="?", help="the application, such as shop.letters:app (or REDRIVE_APP)")
        parser.add_argument("--until-idle", action="store_true", help="end once nothing is left to do, now or later")
        parser.add_argument("--processes", type=int, help="run so many processes and restart dead ones")
        parser.add_argument("--queue", action="append", default=[], help="only this queue; may be given several times")

    def handle(self, *_given: Any, **options: Any) -> None:
        """Run the worker; exit as `redrive worker` does."""
        app = options["app"] or getattr(settings, "REDRIVE_APP", None)
        if app is None:
            raise CommandError("which application? give it as module:attribute, or set REDRIVE_APP in the settings")
        command_line(["worker", app, *_flags(options)])


def _flags(options: dict[str, Any]) -> list[str]:
    processes = options["processes"]
    return [
        *["--until-idle"] * options["until_idle"],
        *([] if processes is None else [f"--processes={processes}"]),
        *(f"--queue={queue}" for queue in options["queue"]),
    ]
