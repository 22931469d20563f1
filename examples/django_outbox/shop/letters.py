"""The redrive application of the project: its letters are in the database that has Django's tables."""

from django.conf import settings
from django.db import connection

from redrive import Letter, Redrive
from shop.models import Booking, Order

app = Redrive(settings.URL)


@app.handler("order.placed")
def book(order: dict[str, int], letter: Letter) -> None:  # a plain function runs in a thread, where Django may block
    with app.once(letter, connection) as first:  # a transaction: the booking and "this letter was handled"
        if first:
            Booking.objects.create(order=Order.objects.get(number=order["number"]))
