"""The letters of the shop: what the worker does, and how often it tries. Nothing here knows of the web service."""

from pydantic import BaseModel

from redrive import Redrive, Reject, RetryPolicy

app = Redrive("sqlite:///shop.db")
app.breaker("warehouse", failures=5, window=60, open_for=30)


class Order(BaseModel):
    number: int
    address: str


class Refund(BaseModel):
    order: int
    cents: int


@app.handler(
    "order.placed",
    policy=RetryPolicy.exponential(first=10, cap=3600, max_attempts=10),  # for hours, not for seconds
    timeout=30,  # seconds
    breaker="warehouse",
)
async def ship(order: Order) -> None:
    print(f"order {order.number} goes to {order.address}", flush=True)


@app.handler("refund.asked")
def pay_back(refund: Refund) -> None:
    if refund.cents <= 0:
        raise Reject("there is nothing to pay back")  # no second try could succeed: a dead letter at once
    print(f"order {refund.order} gets {refund.cents} cents back", flush=True)
