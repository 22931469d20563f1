"""
A FastAPI service that answers at once, and a worker that does the work.

Shows `await app.enqueue(…)` in `async def` endpoints and `app.sync.enqueue(…)` in `def` endpoints, what a
client gets when the store refuses a letter, and how to look a letter up. Run it in this folder
(`pip install redrive fastapi uvicorn`), the worker in a second terminal:

    $ uvicorn web:web
    $ redrive worker shop:app
    $ curl localhost:8000/orders -H 'content-type: application/json' -d '{"number": 17, "address": "Main Street 1"}'
    $ curl localhost:8000/refunds -H 'content-type: application/json' -d '{"order": 17, "cents": 250}'
    $ redrive --url sqlite:///shop.db ls
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from shop import Order, Refund, app

from redrive.errors import LetterNotFound, QueueFull, StoreUnavailable


@asynccontextmanager
async def opened(_web: FastAPI) -> AsyncIterator[None]:
    async with app:  # opens the store before the first request, closes it after the last
        yield
    app.sync.close()


web = FastAPI(lifespan=opened)


@web.post("/orders", status_code=202)
async def place_order(order: Order) -> dict[str, str | bool]:
    receipt = await app.enqueue("order.placed", order, idempotency_key=f"order-{order.number}")
    return {"letter": receipt.id, "duplicate": receipt.duplicate}  # the letter is on disk now


@web.post("/refunds", status_code=202)
def ask_for_refund(refund: Refund) -> dict[str, str | bool]:
    receipt = app.sync.enqueue("refund.asked", refund)  # FastAPI runs a `def` endpoint in a thread
    return {"letter": receipt.id, "duplicate": receipt.duplicate}


@web.get("/letters/{letter_id}")
async def look_up(letter_id: str) -> dict[str, str | int | None]:
    try:
        letter = await app.desk.show(letter_id)
    except LetterNotFound:
        raise HTTPException(404, "there is no such letter") from None
    return {"status": letter.status, "attempts": letter.attempts, "last_error": letter.last_error}


@web.exception_handler(QueueFull)
@web.exception_handler(StoreUnavailable)
async def refuse(_request: Request, _error: Exception) -> JSONResponse:
    return JSONResponse({"detail": "try again later; nothing was kept"}, 503, {"Retry-After": "5"})
