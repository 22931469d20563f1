"""The store for many machines: one PostgreSQL schema, any number of processes on any number of hosts."""

from redrive.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
