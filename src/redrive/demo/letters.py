"""
What the demo enqueues, and what must become of it.

Owns the numbers of the story: how many letters of each kind there are and which of them are in
trouble. Knows no store and no terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.app import Redrive
    from redrive.core.letter import Draft

    Letters = Iterator[tuple[float, str, str, dict[str, Any]]]  # when (0 to 1), queue, kind, payload

ORDERS, PAYMENTS, PARCELS, INVOICES = 800, 600, 500, 100
TOTAL = ORDERS + PAYMENTS + PARCELS + INVOICES
BAD, FLAKY, VOUCHERS, CURSED = 40, 75, 50, 1
FAILED = BAD + VOUCHERS + CURSED  # what no retry can heal
_REFUSALS = 2  # times that the provider hangs up on a flaky payment


def drafts(app: Redrive) -> list[Draft]:
    """Return the letters of a busy morning: each kind is spread over all of it."""
    streams = (_orders(), _payments(), _parcels(), _invoices())
    mixed = sorted((one for stream in streams for one in stream), key=lambda one: one[0])
    return [app.draft(kind, payload, queue=queue) for _, queue, kind, payload in mixed]


def _orders() -> Letters:
    for n in range(ORDERS):
        yield (
            n / ORDERS,
            "orders",
            "order.confirm",
            {"number": n, "quantity": "two" if _is_one_of(n, BAD, ORDERS) else 2},
        )


def _payments() -> Letters:
    for n in range(PAYMENTS):
        refusals = _REFUSALS if _is_one_of(n, FLAKY, PAYMENTS) else 0
        yield n / PAYMENTS, "payments", "payment.capture", {"number": n, "refusals": refusals}


def _parcels() -> Letters:
    for n in range(PARCELS):
        yield (
            n / PARCELS,
            "parcels",
            "parcel.ship",
            {"number": n, "grams": 0 if _is_one_of(n, VOUCHERS, PARCELS) else 850},
        )


def _invoices() -> Letters:
    for n in range(INVOICES):
        font = "Cursed" if _is_one_of(n, CURSED, INVOICES) else "Garamond"
        yield n / INVOICES, "invoices", "invoice.render", {"number": n, "font": font}


def _is_one_of(n: int, few: int, many: int) -> bool:
    """Say whether letter *n* is one of the *few* that are spread evenly over the *many*."""
    step = many // few
    return n % step == step // 2
