"""The broker of the tests comes up although somebody takes its port."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest
from tests.servers import kafka
from tests.sources.kafka.needed import needed


@pytest.mark.slow
@pytest.mark.parametrize("port", ["port", "controller"])
def test_a_broker_whose_port_somebody_took_starts_again_on_another(port):
    with needed(), closing(kafka.Broker()) as broker, socket.socket() as other:
        taken = getattr(broker, port)
        other.bind(("127.0.0.1", taken))
        other.listen()
        with broker:
            assert getattr(broker, port) != taken
            assert broker.bootstrap == f"127.0.0.1:{broker.port}"
            assert broker.port not in {taken, broker.controller}


@pytest.mark.slow
def test_a_broker_that_cannot_start_at_all_says_what_it_said(monkeypatch):
    monkeypatch.setattr(kafka, "BEGINNINGS", 2)
    wrong = kafka.Broker(broker_heartbeat_interval_ms="soon")
    with needed(), pytest.raises(kafka.Ended, match="the broker ended with 1 while it started"):
        wrong.__enter__()
    assert not wrong.folder.exists()
