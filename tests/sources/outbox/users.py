"""Users of every driver, each with their own transaction: they place orders, and they have effects."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
import django
import psycopg
import sqlalchemy as sa
from django.conf import settings as django_settings
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

if TYPE_CHECKING:
    from collections.abc import Callable
    from urllib.parse import SplitResult

    from redrive import Letter, Redrive
    from redrive.stores.contract import Receipt

TABLES = """
CREATE SCHEMA IF NOT EXISTS shop;
CREATE TABLE IF NOT EXISTS shop.orders (id text);
CREATE TABLE IF NOT EXISTS shop.effects (letter text);
TRUNCATE shop.orders, shop.effects;
"""
KIND = "order.paid"
ORDER = "INSERT INTO shop.orders VALUES ('{}')"
EFFECT = "INSERT INTO shop.effects VALUES ('{}')"


class Undo(Exception):
    """The user changes their mind: everything in the transaction is rolled back."""


class User:
    """Somebody with a database of their own."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def pay(self, app: Redrive, order: str, *, commit: bool = True, **options: Any) -> Receipt | None:
        """Write an order and enqueue its letter in one transaction; None if it was rolled back."""
        try:
            return await self._pay(app, order, commit, options)
        except Undo:
            return None

    async def handle(self, app: Redrive, letter: Letter, then: Callable[[], None] = lambda: None) -> bool:
        """Have the letter's effect unless it has been had; *then* is called before the commit."""
        raise NotImplementedError

    async def _pay(self, app: Redrive, order: str, commit: bool, options: dict[str, Any]) -> Receipt:
        raise NotImplementedError


def _decide(commit: bool) -> None:
    if not commit:
        raise Undo


def _wake(options: dict[str, Any]) -> dict[str, Any]:
    return {"wake": options.pop("wake", True)}


def _keep(app: Redrive, outbox: Any, order: str, options: dict[str, Any]) -> Any:
    """Enqueue the order's letter, or with *keys* as many letters as there are idempotency keys, at once."""
    if (keys := options.pop("keys", None)) is None:
        return outbox.enqueue(KIND, order, **options)
    return outbox.enqueue_many([app.draft(KIND, order, idempotency_key=key, **options) for key in keys])


class Psycopg(User):
    async def _pay(self, app, order, commit, options):
        return await asyncio.to_thread(self._pay_now, app, order, commit, options)

    def _pay_now(self, app, order, commit, options):
        with psycopg.connect(self.url) as connection:
            connection.execute(ORDER.format(order))
            receipt = _keep(app, app.outbox(connection, **_wake(options)), order, options)
            _decide(commit)
        return receipt

    async def handle(self, app, letter, then=lambda: None):
        return await asyncio.to_thread(self._handle_now, app, letter, then)

    def _handle_now(self, app, letter, then):
        with psycopg.connect(self.url) as connection, app.once(letter, connection) as first:
            if first:
                connection.execute(EFFECT.format(letter.id))
            then()
        return first


class PsycopgAsync(User):
    async def _pay(self, app, order, commit, options):
        async with await psycopg.AsyncConnection.connect(self.url) as connection:
            await connection.execute(ORDER.format(order))
            receipt = await _keep(app, app.outbox(connection, **_wake(options)), order, options)
            _decide(commit)
        return receipt

    async def handle(self, app, letter, then=lambda: None):
        connected = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
        async with connected as connection, app.once(letter, connection) as first:
            if first:
                await connection.execute(EFFECT.format(letter.id))
            then()
        return first


class Asyncpg(User):
    async def _pay(self, app, order, commit, options):
        connection = await asyncpg.connect(self.url)
        try:
            async with connection.transaction():
                await connection.execute(ORDER.format(order))
                receipt = await _keep(app, app.outbox(connection, **_wake(options)), order, options)
                _decide(commit)
        finally:
            await connection.close()
        return receipt

    async def handle(self, app, letter, then=lambda: None):
        connection = await asyncpg.connect(self.url)
        try:
            async with app.once(letter, connection) as first:
                if first:
                    await connection.execute(EFFECT.format(letter.id))
                then()
        finally:
            await connection.close()
        return first


class AsyncpgPool(User):
    async def _pay(self, app, order, commit, options):
        pool = asyncpg.create_pool(self.url, min_size=1, max_size=1)
        async with pool, pool.acquire() as connection, connection.transaction():
            await connection.execute(ORDER.format(order))
            receipt = await _keep(app, app.outbox(connection, **_wake(options)), order, options)
            _decide(commit)
        return receipt

    async def handle(self, app, letter, then=lambda: None):
        pool = asyncpg.create_pool(self.url, min_size=1, max_size=1)
        async with pool, pool.acquire() as connection, app.once(letter, connection) as first:
            if first:
                await connection.execute(EFFECT.format(letter.id))
            then()
        return first


class AlchemySession(User):
    """Also with a savepoint in between: what is kept in it is kept by the transaction around it."""

    def _sessions(self):
        engine = sa.create_engine(self.url.replace("postgresql", "postgresql+psycopg"), poolclass=sa.NullPool)
        return sessionmaker(engine)

    async def _pay(self, app, order, commit, options):
        return await asyncio.to_thread(self._pay_now, app, order, commit, options)

    def _pay_now(self, app, order, commit, options):
        with self._sessions().begin() as session:
            session.execute(sa.text(ORDER.format(order)))
            with session.begin_nested():
                receipt = _keep(app, app.outbox(session, **_wake(options)), order, options)
            _decide(commit)
        return receipt

    async def handle(self, app, letter, then=lambda: None):
        return await asyncio.to_thread(self._handle_now, app, letter, then)

    def _handle_now(self, app, letter, then):
        with self._sessions()() as session, app.once(letter, session) as first:
            if first:
                session.execute(sa.text(EFFECT.format(letter.id)))
            then()
        return first


class AlchemyScoped(AlchemySession):
    def _pay_now(self, app, order, commit, options):
        session: scoped_session[Session] = scoped_session(self._sessions())
        try:
            session.execute(sa.text(ORDER.format(order)))
            receipt = _keep(app, app.outbox(session, **_wake(options)), order, options)
            _decide(commit)
            session.commit()
        finally:
            session.remove()
        return receipt

    def _handle_now(self, app, letter, then):
        session: scoped_session[Session] = scoped_session(self._sessions())
        try:
            session.execute(sa.text("SELECT 1"))  # a transaction is open: once() is a savepoint in it
            with app.once(letter, session) as first:
                if first:
                    session.execute(sa.text(EFFECT.format(letter.id)))
                then()
            session.commit()
        finally:
            session.remove()
        return first


class AlchemyConnection(AlchemySession):
    def _pay_now(self, app, order, commit, options):
        engine = self._sessions().kw["bind"]
        with engine.begin() as connection:
            connection.execute(sa.text(ORDER.format(order)))
            receipt = _keep(app, app.outbox(connection, **_wake(options)), order, options)
            _decide(commit)
        return receipt

    def _handle_now(self, app, letter, then):
        with self._sessions().kw["bind"].connect() as connection, app.once(letter, connection) as first:
            if first:
                connection.execute(sa.text(EFFECT.format(letter.id)))
            then()
        return first


class AlchemyAsync(User):
    driver = "asyncpg"

    def _sessions(self) -> async_sessionmaker[AsyncSession]:
        url = self.url.replace("postgresql", f"postgresql+{self.driver}")
        return async_sessionmaker(create_async_engine(url, poolclass=sa.NullPool))

    async def _pay(self, app, order, commit, options):
        async with self._sessions().begin() as session:
            await session.execute(sa.text(ORDER.format(order)))
            receipt = await _keep(app, app.outbox(session, **_wake(options)), order, options)
            _decide(commit)
        return receipt

    async def handle(self, app, letter, then=lambda: None):
        async with self._sessions()() as session, app.once(letter, session) as first:
            if first:
                await session.execute(sa.text(EFFECT.format(letter.id)))
            then()
        return first


class AlchemyAsyncPsycopg(AlchemyAsync):
    driver = "psycopg"


class AlchemyAsyncScoped(AlchemyAsync):
    async def _pay(self, app, order, commit, options):
        session = async_scoped_session(self._sessions(), scopefunc=asyncio.current_task)
        try:
            await session.execute(sa.text(ORDER.format(order)))
            receipt = await _keep(app, app.outbox(session, **_wake(options)), order, options)
            _decide(commit)
            await session.commit()
        finally:
            await session.remove()
        return receipt


class AlchemyAsyncConnection(AlchemyAsync):
    async def _pay(self, app, order, commit, options):
        async with self._sessions().kw["bind"].begin() as connection:
            await connection.execute(sa.text(ORDER.format(order)))
            receipt = await _keep(app, app.outbox(connection, **_wake(options)), order, options)
            _decide(commit)
        return receipt

    async def handle(self, app, letter, then=lambda: None):
        async with self._sessions().kw["bind"].connect() as connection, app.once(letter, connection) as first:
            if first:
                await connection.execute(sa.text(EFFECT.format(letter.id)))
            then()
        return first


class Django(User):
    alias = "default"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        set_up_django(url)

    async def _pay(self, app, order, commit, options):
        return await asyncio.to_thread(self._pay_now, app, order, commit, options)

    def _pay_now(self, app, order, commit, options):
        from django.db import connections, transaction  # noqa: PLC0415 - needs settings

        try:
            with transaction.atomic(using=self.alias):
                with connections[self.alias].cursor() as cursor:
                    cursor.execute(ORDER.format(order))
                receipt = _keep(app, app.outbox(self._connection(), **_wake(options)), order, options)
                _decide(commit)
        finally:
            connections.close_all()
        return receipt

    def _connection(self):
        from django.db import connection  # noqa: PLC0415 - needs settings

        return connection

    async def handle(self, app, letter, then=lambda: None):
        return await asyncio.to_thread(self._handle_now, app, letter, then)

    def _handle_now(self, app, letter, then):
        from django.db import connections  # noqa: PLC0415 - needs settings

        try:
            with app.once(letter, self._connection()) as first:
                if first:
                    with connections[self.alias].cursor() as cursor:
                        cursor.execute(EFFECT.format(letter.id))
                then()
        finally:
            connections.close_all()
        return first


class DjangoNamed(Django):
    alias = "other"

    def _connection(self):
        from django.db import connections  # noqa: PLC0415 - needs settings

        return connections["other"]


def set_up_django(url: str) -> None:
    """Configure Django for this process, once."""
    from urllib.parse import urlsplit  # noqa: PLC0415

    parts: SplitResult = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
    if not django_settings.configured:
        django_settings.configure(DATABASES={"default": database, "other": dict(database)}, USE_TZ=True)
        django.setup()


USERS: dict[str, type[User]] = {
    "psycopg": Psycopg,
    "psycopg-async": PsycopgAsync,
    "asyncpg": Asyncpg,
    "asyncpg-pool": AsyncpgPool,
    "sqlalchemy-session": AlchemySession,
    "sqlalchemy-scoped": AlchemyScoped,
    "sqlalchemy-connection": AlchemyConnection,
    "sqlalchemy-async": AlchemyAsync,
    "sqlalchemy-async-psycopg": AlchemyAsyncPsycopg,
    "sqlalchemy-async-scoped": AlchemyAsyncScoped,
    "sqlalchemy-async-connection": AlchemyAsyncConnection,
    "django": Django,
    "django-named": DjangoNamed,
}
