"""The terminal: every command is one call thick over the desk, the app or the settings."""

from redrive.cli.root import app, main

__all__ = ["app", "main"]
