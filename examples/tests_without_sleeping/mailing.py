"""An application that sends mails, and the mail server that it needs. test_mailing.py tests it."""

import asyncio

from redrive import Redrive, Reject, RetryPolicy

app = Redrive("sqlite:///mailing.db")
server = {"state": "up"}
sent: list[str] = []


@app.handler("mail.send", policy=RetryPolicy.exponential(first=60, cap=3600, max_attempts=6), timeout=20)
async def send(mail: dict[str, str]) -> None:
    if "@" not in mail["to"]:
        raise Reject("that is no address")
    if server["state"] == "down":
        raise ConnectionRefusedError("the mail server is down")
    if server["state"] == "hangs":
        await asyncio.sleep(3600)
    sent.append(mail["to"])
