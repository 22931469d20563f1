"""The store that forgets: for tests and demos, with every promise but durability."""

from redrive.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
