"""
What the commands of `redrive pipeline` need beyond `pip install redrive`.

Owns the sentence that says so, and that gRPC itself writes nothing on the terminal. Knows no command.
"""

from __future__ import annotations

import os
from functools import wraps
from typing import TYPE_CHECKING, Any

from redrive.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

_OF_THE_EXTRA = {"cel_expr_python", "confluent_kafka", "fast_sugiyama", "google", "grpc", "obstore", "yaml"}


def needs_pipeline(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let *command* say what to install when a package of the extra `pipeline` is missing."""

    @wraps(command)
    def guarded(*args: Any, **options: Any) -> Any:
        # gRPC reads it when it is imported. Its own lines repeat what calls answer, and call a module without a health
        # service an error.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        try:
            return command(*args, **options)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in _OF_THE_EXTRA:
                raise
            way_out = "pip install 'redrive[pipeline]'"
            raise SettingsError([f"this command needs {error.name}, which is not installed; run: {way_out}"]) from None

    return guarded
