"""
Paths of requests, whether the inbox is mounted in another application or stands alone.

Owns what is left of a path below a mount. A path is compared as a whole with names of sources: nothing in it is ever
resolved, joined or unescaped here. Knows no source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


MOUNT = "hooks"  # where an inbox that stands alone has its sources
TIMED = "redrive.timed"  # in a scope: the server ends a request that takes too long to arrive


def steps_of(scope: Mapping[str, Any]) -> list[str]:
    """Return the steps of a request's path below its mount; `/stripe` is ["stripe"], `//stripe` is two of them."""
    path, root = str(scope["path"]), str(scope.get("root_path") or "")
    if root and (path == root or path.startswith(f"{root.rstrip('/')}/")):
        path = path[len(root.rstrip("/")) :]
    return path.removeprefix("/").split("/")
