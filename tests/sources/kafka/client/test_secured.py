"""A broker that asks who is there: every client of the consumer, and of the commands, says it."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.servers.kafka import Broker
from tests.servers.ports import free_port
from tests.sources.kafka.needed import needed
from tests.sources.kafka.stage import LIMIT, Stage, running, until

from redrive.sources.kafka import ExecutionConfig, KafkaConfig, ParallelConsumer

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[4]
MODULES = "org.apache.kafka.common.security"


class Guarded(Broker):
    """A broker with a second door, at which a password or a token is asked for."""

    def __init__(self) -> None:
        super().__init__()
        door = free_port()
        self.door = f"127.0.0.1:{door}"
        open_door, inside = f"PLAINTEXT://{self.bootstrap}", f"CONTROLLER://127.0.0.1:{self.controller}"
        self._properties = {
            "listeners": f"{open_door},GUARDED://{self.door},{inside}",
            "advertised.listeners": f"{open_door},GUARDED://{self.door}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
            "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "listener.name.guarded.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_shop="sesame";'
            ),
            "listener.name.guarded.oauthbearer.sasl.jaas.config": (
                f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
            ),
        }


@pytest.fixture(scope="module")
def guarded():
    with needed(), Guarded() as broker:
        yield broker


def redrive(*words, **variables):
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), **variables}
    return {"args": [sys.executable, "-m", "redrive.cli", "kafka", *words], "env": env}


async def test_the_commands_connect_with_settings_of_the_environment(guarded, tmp_path):
    secrets = {"sasl.mechanisms": "PLAIN", "sasl.username": "shop", "sasl.password": "sesame"}
    variables = {
        "KAFKA_BOOTSTRAP_SERVERS": json.dumps([guarded.door]), "KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KAFKA_SETTINGS": json.dumps(secrets), "EXECUTION_MAX_RETRIES": "1",
    }  # fmt: skip
    (tmp_path / "shop.py").write_text("async def ship(record): raise ValueError('no such order')")
    with closing(Stage(guarded.bootstrap, "guarded")) as stage:
        stage.create()
        stage.produce([{"value": b"soup"}])
        consume = redrive("consume", "shop:ship", "--topic", stage.topic, "--group", stage.group, **variables)
        with subprocess.Popen(**consume, cwd=tmp_path) as process:  # noqa: ASYNC220
            try:
                await until(lambda: stage.committed() == 1)
            finally:
                process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT) == 0
        listed = subprocess.run(  # noqa: ASYNC221
            **redrive("dlq", "ls", stage.dlq, "--json", **variables), capture_output=True, timeout=LIMIT, check=True
        )
        assert [letter["exception"] for letter in json.loads(listed.stdout)["dead_letters"]] == ["ValueError"]


async def test_a_token_comes_from_a_function_for_every_client(guarded):
    asked = []

    def token(_config):
        asked.append(1)
        until_when = time.time() + 3600
        return unsecured("shop", until_when), until_when

    async def ship(record):
        raise ValueError("no such order")

    with closing(Stage(guarded.bootstrap, "token")) as stage:
        stage.create()
        stage.produce([{"value": b"soup"}])
        kafka = KafkaConfig(
            bootstrap_servers=guarded.door, security_protocol="SASL_PLAINTEXT", sasl_mechanisms="OAUTHBEARER",
            settings={"oauth_cb": token},
        )  # fmt: skip
        consumer = ParallelConsumer(
            [stage.topic], ship, group=stage.group, execution=ExecutionConfig(max_retries=1), kafka=kafka
        )
        async with running(consumer):
            await until(lambda: stage.committed() == 1)
        assert len(stage.dead_letters()) == 1
    assert len(asked) >= 3  # the consumer, the producer, and who looks after topics


def unsecured(name, until_when):
    """Return a token that a broker without a key takes."""
    parts = ({"alg": "none"}, {"sub": name, "iat": int(until_when) - 3600, "exp": int(until_when)})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."
