"""The page about the outbox, followed to the letter on a real server."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
import textwrap
import types

import pytest
from tests.docs.pages import DOCS, blocks
from tests.sources.outbox.users import set_up_django

from redrive import Letter

PAGE = DOCS / "how-to" / "outbox.md"
URL = "postgresql://shop@db.example/shop"
COUNT = "SELECT count(*) FROM redrive.outbox WHERE event_type = 'order.paid'"


@pytest.mark.usefixtures("app")  # an empty schema
async def test_the_page_does_what_it_says(url, connection, monkeypatch):
    await connection.execute(
        "DROP TABLE IF EXISTS orders, bookings; CREATE TABLE orders (id integer, state text); "
        "INSERT INTO orders VALUES (17, 'new'); CREATE TABLE bookings (id integer)"
    )
    set_up_django(url)
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    enqueued = 0
    for block in blocks(PAGE, "python"):
        code = compile(
            block.code.replace(URL, url), "outbox.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        await _execute(code, module, apart="django" in block.code)
        enqueued += ".enqueue(" in block.code
        assert await connection.fetchval(COUNT) == enqueued, block.code
    assert enqueued == 6
    await module.app.run(until_idle=True, signals=False)
    await module.app.close()
    assert await connection.fetchval("SELECT count(*) FROM bookings") == 6
    assert await connection.fetchval("SELECT state FROM orders") == "paid"
    await connection.execute("DELETE FROM redrive.subscription")
    for block in blocks(PAGE, "sql"):
        await connection.execute(block.code)


async def _execute(code: types.CodeType, module: types.ModuleType, *, apart: bool) -> None:
    if apart:  # Django refuses to block an event loop
        await asyncio.to_thread(_execute_apart, code, module)
        return
    result = eval(code, vars(module))  # noqa: S307 - our own page; a block with await is a coroutine
    if inspect.iscoroutine(result):
        await result


def _execute_apart(code: types.CodeType, module: types.ModuleType) -> None:
    from django.db import connections  # noqa: PLC0415 - needs settings

    eval(code, vars(module))  # noqa: S307 - our own page
    connections.close_all()


WRONG, RIGHT = (
    textwrap.dedent(code)
    for code in re.findall(
        r'^    ```python title="(?:wrong|right)"\n(.*?)^    ```$', PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
)


@pytest.mark.parametrize(("code", "bookings"), [(WRONG, 0), (RIGHT, 1)], ids=["wrong", "right"])
async def test_the_warning_shows_how_an_effect_is_lost_and_how_it_is_kept(app, url, connection, code, bookings):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    orm = pytest.importorskip("sqlalchemy.orm")
    await connection.execute("DROP TABLE IF EXISTS orders, bookings; CREATE TABLE orders (id integer, state text)")
    await connection.execute("CREATE TABLE bookings (id integer)")
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    names = {"app": app, "engine": engine, "text": sqlalchemy.text, "Session": orm.Session, "Letter": Letter}
    exec(code, names)  # noqa: S102 - our own page
    app.handler("order.paid")(names["book"])
    receipt = await app.enqueue("order.paid", {"order": 17})
    await app.run(until_idle=True, signals=False)
    engine.dispose()
    assert (await app.desk.show(receipt.id)).status == "delivered"
    assert await connection.fetchval("SELECT count(*) FROM bookings") == bookings
