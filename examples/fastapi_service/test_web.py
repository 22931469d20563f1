"""Tests of the endpoints and of the work behind them, without a server, a worker or a file: `pytest`."""

import httpx
from shop import app
from web import web


def test_an_order_is_kept_at_once_and_shipped_by_the_worker(redrive_drive):
    test = redrive_drive(app)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://shop")
    answer = test.run(client.post("/orders", json={"number": 17, "address": "Main Street 1"}))
    assert answer.status_code == 202

    test.run_until_idle()
    assert test.letter(answer.json()["letter"]).status == "delivered"
