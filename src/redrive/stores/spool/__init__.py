"""A local file in front of a store: letters are accepted while the store is away, and forwarded when it is back."""

from redrive.stores.spool.store import SpoolStore

__all__ = ["SpoolStore"]
