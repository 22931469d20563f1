"""
A Django project whose handlers a worker runs.

Owns what Django needs in a process that serves no requests: its apps are loaded, and each handler begins and ends
as a request does, so that a connection which broke or grew too old is closed and the next query opens another.
Without that, a thread keeps a broken connection, and every letter that it runs fails. Knows no letter.
"""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.app import Redrive


def set_up() -> None:
    """Load the apps of the Django project that the environment names, so that handlers may use its models."""
    if is_named():
        import django

        django.setup()  # does nothing the second time


def is_named() -> bool:
    """Say whether the environment names a Django project, and Django is installed."""
    return bool(os.environ.get("DJANGO_SETTINGS_MODULE")) and find_spec("django") is not None


def refresh_connections(app: Redrive) -> None:
    """Let each handler of *app* that runs in threads begin and end as a request of Django does."""
    if is_named():
        for kind, handler in app.handlers.items():
            if handler.engine == "thread":
                app.handlers[kind] = replace(handler, call=_as_request(handler.call))


def _as_request(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    from django.db import close_old_connections

    def run(letter: Any) -> Any:
        close_old_connections()  # those of this thread
        try:
            return call(letter)
        finally:
            close_old_connections()

    return run
