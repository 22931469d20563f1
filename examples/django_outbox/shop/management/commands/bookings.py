"""`manage.py bookings`: show what the worker has booked."""

from typing import Any

from django.core.management.base import BaseCommand

from shop.models import Booking, Order


class Command(BaseCommand):
    def handle(self, *_given: Any, **_options: Any) -> None:
        self.stdout.write(f"orders {sorted(Order.objects.values_list('number', flat=True))}")
        self.stdout.write(f"bookings {sorted(Booking.objects.values_list('order__number', flat=True))}")
