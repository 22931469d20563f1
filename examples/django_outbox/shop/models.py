"""The tables of the shop."""

from django.db import models


class Order(models.Model):
    number = models.IntegerField(unique=True)

    def __str__(self) -> str:
        return f"order {self.number}"


class Booking(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE)

    def __str__(self) -> str:
        return f"booking of {self.order}"
