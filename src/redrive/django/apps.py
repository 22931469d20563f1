"""What Django asks of an application."""

from __future__ import annotations

from django.apps import AppConfig


class RedriveConfig(AppConfig):  # type: ignore[misc]  # Django ships no types
    """The application `redrive.django`; it has no models."""

    name = "redrive.django"
    label = "redrive"
