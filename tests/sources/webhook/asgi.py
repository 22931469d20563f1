"""An ASGI client of a few lines: raw bytes in, status, headers and body out; no server and no socket."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Answer(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def request(
    app: Any, method: str, path: str, body: bytes = b"", headers: Any = (), query: bytes = b"", *, parts: Any = None
) -> Answer:
    sent: list[Any] = []
    chunks = list(parts) if parts is not None else [body]
    messages = [
        {"type": "http.request", "body": chunk, "more_body": at < len(chunks) - 1} for at, chunk in enumerate(chunks)
    ]

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "root_path": "", "query_string": query}
    await app({**scope, "headers": [(name.lower(), value) for name, value in headers]}, receive, send)
    if not sent:
        return Answer(0, {}, b"")
    return Answer(sent[0]["status"], dict(sent[0]["headers"]), b"".join(each.get("body", b"") for each in sent[1:]))


async def post(app: Any, path: str, body: bytes = b"", headers: Any = (), **options: Any) -> Answer:
    return await request(app, "POST", path, body, headers, **options)


async def get(app: Any, path: str, query: bytes = b"") -> Answer:
    return await request(app, "GET", path, query=query)
