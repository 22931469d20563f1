"""`manage.py place_order 17`: write an order and enqueue its letter, in one transaction."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction

from shop.letters import app
from shop.models import Order


@transaction.atomic
def place_order(number: int, *, paid: bool) -> None:
    Order.objects.create(number=number)
    app.outbox(connection).enqueue("order.placed", {"number": number})
    if not paid:
        raise CommandError(f"order {number} is not paid: neither the order nor its letter is kept")


class Command(BaseCommand):
    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("number", type=int)
        parser.add_argument("--unpaid", action="store_true", help="raise after both were written")

    def handle(self, *_given: Any, number: int, unpaid: bool, **_options: Any) -> None:
        place_order(number, paid=not unpaid)
        self.stdout.write(f"order {number} is placed")
