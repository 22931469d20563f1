"""
One HTTP request from the command line.

Owns the client and its one error; follows no redirect. Knows no command.
"""

from __future__ import annotations

from typing import Any

from redrive.errors import SourceError


def request(method: str, url: str, body: bytes = b"", headers: Any = ()) -> tuple[int, str]:
    """Return status and text; a redirect is not followed."""
    import httpcore2

    try:
        answer = httpcore2.request(method, url, headers=list(headers), content=body)
    except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError, ValueError) as error:
        raise SourceError(
            f"cannot reach {url}: {type(error).__name__}; is `redrive inbox run` running there?"
        ) from None
    return answer.status, answer.content.decode("utf-8", "replace")
