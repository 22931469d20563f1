"""
The webhook inbox: store first, answer fast, process with retry.

Owns the way of a webhook: its raw bytes are checked (`signatures`), read and routed (`events`), kept as one letter and
answered (`receiving`), then handled by the application or sent on to an HTTP service (`forwarding`). What a sender may
do is described by a `Source`, a frozen value. Knows no store and no other source; `settings` alone reads the
environment and files, and hands values in.

What it promises, and the tests in `tests/sources/webhook` that keep it:

- A 202 means that exactly one letter is kept; a 200 means that this event was kept before, or that the source does not
  want it; every other answer means that nothing is kept (`receiving/test_answers`).
- Signatures are checked over raw bytes, in constant time, before anything is parsed; no bytes raise anything but a
  verdict (`signatures/test_any_bytes`, `signatures/test_published_examples`).
- One event of a source is one letter, whatever its type and however often it arrives (`receiving/test_duplicates`).
- A full queue is refused before anything is kept (`receiving/test_full`).
- A body, its headers, its unpacked size and the time it takes are bounded (`receiving/test_limits`, `test_hostile`).
- Waits between tries are `min(RETRY_BASE_DELAY * 2**attempts, RETRY_MAX_DELAY)` (`processing/test_retries`).
- A forward goes to the address that was checked, and to no host that a letter chose (`forwarding`).
- No payload, header value or secret is in a log, a metric or an answer (`test_nothing_leaks`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redrive.sources.webhook.forwarding.forward import Forward
    from redrive.sources.webhook.inbox import Inbox
    from redrive.sources.webhook.source import Source

__all__ = ["Forward", "Inbox", "Source"]
_PLACES = {"Forward": "forwarding.forward", "Inbox": "inbox", "Source": "source"}  # `settings` needs none of them


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    return found
