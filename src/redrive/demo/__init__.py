"""`redrive demo`: a small shop, its failures, and how an operator puts them right, on an embedded store."""

from redrive.demo.story import main

__all__ = ["main"]
