"""A letter fails three times and becomes a dead letter; an operator replays it: python first_dead_letter.py."""

import asyncio

from redrive import Redrive, RetryPolicy

app = Redrive("sqlite:///labels.db")
printer = {"on": False}


@app.handler("label.print", policy=RetryPolicy.exponential(first=0.1, max_attempts=3))
async def print_label(parcel: str) -> None:
    if not printer["on"]:
        raise ConnectionError("the label printer is off")
    print(f"printed the label of {parcel}")


async def main() -> None:
    async with app:
        await app.enqueue("label.print", "parcel 4711")  # on disk once this returns
        await app.run(until_idle=True)  # three tries, then it is a dead letter
        for group in await app.desk.groups():
            print(f"{group.count} failed: {group.title} ({group.verdict})")

        printer["on"] = True
        await app.desk.replay(query="kind:label.print", reason="the printer is on again")
        await app.run(until_idle=True)
        print((await app.desk.stats()).books)


asyncio.run(main())
