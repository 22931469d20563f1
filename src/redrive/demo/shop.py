"""
The shop of the demo, written as a user would write it.

Owns four handlers and what is wrong with each. `redrive worker redrive.demo.shop:app` runs it; the
settings come from the demo's own redrive.toml. Knows nothing of the story that is told with it.
"""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path
from urllib.parse import unquote

import msgspec

from redrive.app import Redrive
from redrive.core.letter import Letter  # noqa: TC001 - the handlers' annotations are read at run time
from redrive.core.policy import RetryPolicy
from redrive.errors import Reject

FIXED = "1.1"  # the release in which the bug of `ship` is gone
HANDLED = "handled.log"
_SECONDS = 0.02  # that a handler takes
_SOON = RetryPolicy.exponential(0.1, cap=2, max_attempts=4, jitter="equal")

app = Redrive()


class Order(msgspec.Struct):
    """What `order.confirm` expects; a payload that is anything else is a validation failure."""

    number: int
    quantity: int


class Payment(msgspec.Struct):
    """What `payment.capture` expects; *refusals* is how often the provider hangs up on it."""

    number: int
    refusals: int = 0


class Parcel(msgspec.Struct):
    """What `parcel.ship` expects."""

    number: int
    grams: int


class Invoice(msgspec.Struct):
    """What `invoice.render` expects; *font* may be one that crashes the renderer."""

    number: int
    font: str = "Garamond"


@app.handler("order.confirm", queue="orders")
async def confirm(order: Order, letter: Letter) -> None:
    """Confirm an order."""
    await asyncio.sleep(_SECONDS)
    if order.quantity < 1:
        raise Reject(f"order {order.number} is for {order.quantity} pieces; there is nothing to confirm")
    _note(letter)


@app.handler("payment.capture", queue="payments", policy=_SOON)
async def capture(payment: Payment, letter: Letter) -> None:
    """Capture a payment, at a provider that sometimes hangs up."""
    await asyncio.sleep(_SECONDS)
    if letter.attempts <= payment.refusals:
        raise ConnectionResetError("the payment provider hung up")
    _note(letter)


@app.handler("parcel.ship", queue="parcels", policy=RetryPolicy.exponential(0.1, cap=1, max_attempts=3))
async def ship(parcel: Parcel, letter: Letter) -> None:
    """Ship a parcel. Until release 1.1 it forgets that a voucher weighs nothing."""
    await asyncio.sleep(_SECONDS)
    grams = max(parcel.grams, 1) if app.settings.release == FIXED else parcel.grams
    _ = 1_000 / grams  # parcels to the kilogram
    _note(letter)


@app.handler("invoice.render", queue="invoices", engine="process")
def render(invoice: Invoice, letter: Letter) -> None:
    """Render an invoice with a native library that one font crashes."""
    if invoice.font == "Cursed":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core dump is of no use
        os.abort()
    _note(letter)


def _note(letter: Letter) -> None:
    """Write down that it was handled, outside of redrive: what the demo's end is checked against."""
    path = Path(unquote(app.settings.url.removeprefix("sqlite:///"))).with_name(HANDLED)
    line = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(line, f"{letter.id}\n".encode())
    finally:
        os.close(line)
