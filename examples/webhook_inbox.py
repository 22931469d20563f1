"""
A signed webhook that fails, is fixed and replayed.

Run it: `python webhook_inbox.py`. It needs `redrive[webhook]`, and writes its letters into inbox.db in this folder.
"""

import asyncio
import hashlib
import hmac
import json
import os

import httpx2

from redrive import Redrive, Reject
from redrive.sources.webhook import Inbox, Source

SECRET = os.environ.setdefault("GITHUB_SECRET", "32 characters that nobody knows!")
targets = {"refs/heads/main": "production"}

app = Redrive("sqlite:///inbox.db")
inbox = Inbox(app, [Source.github(secrets=["env:GITHUB_SECRET"])], workers="elsewhere")  # run by hand, below


@app.handler("github.push")
async def deploy(push: dict) -> None:
    if push["ref"] not in targets:
        raise Reject(f"there is no target for {push['ref']}")
    print(f"{push['ref']} goes to {targets[push['ref']]}")


async def send(delivery: str, push: dict, secret: str = SECRET) -> None:
    """Send an event as GitHub does."""
    body = json.dumps(push).encode()
    headers = {
        "X-GitHub-Event": "push",
        "X-GitHub-Delivery": delivery,
        "X-Hub-Signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest(),
    }
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(inbox), base_url="http://inbox") as client:
        answer = await client.post("/github", content=body, headers=headers)
    print(f"{delivery}: {answer.status_code}")


async def main() -> None:
    await send("first", {"ref": "refs/heads/main"})
    await send("first", {"ref": "refs/heads/main"})  # sent again: the same letter
    await send("forged", {"ref": "refs/heads/main"}, secret="a guess of the same length as it")  # noqa: S106
    await send("second", {"ref": "refs/heads/beta"})
    await app.run(until_idle=True, signals=False)

    (dead,) = (await app.desk.ls("status:failed")).letters
    print(f"dead: {dead.kind}, {dead.last_error}")

    targets["refs/heads/beta"] = "staging"  # the fix
    await app.desk.replay(dead.id, reason="beta has a target now")
    await app.run(until_idle=True, signals=False)
    print(f"dead letters left: {len((await app.desk.ls('status:failed')).letters)}")
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
