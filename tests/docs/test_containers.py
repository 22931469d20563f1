"""The manifests of the page about containers fit the settings of the code."""

from __future__ import annotations

import pytest
from tests.docs.pages import DOCS, blocks

from redrive.settings import Settings

yaml = pytest.importorskip("yaml")
MANIFESTS = {block.title: yaml.safe_load(block.code) for block in blocks(DOCS / "how-to" / "containers.md", "yaml")}


def test_kubernetes_waits_longer_than_a_worker_drains():
    pod = MANIFESTS["worker.yaml"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    given = {each["name"]: each.get("value") for each in container["env"]}
    assert pod["terminationGracePeriodSeconds"] > float(given["REDRIVE_DRAIN_SECONDS"])
    assert str(container["ports"][0]["containerPort"]) == given["REDRIVE_METRICS_PORT"]
    assert given["REDRIVE_METRICS_HOST"] == "0.0.0.0"  # noqa: S104 - the loopback of a container reaches no scraper


def test_compose_waits_longer_than_a_worker_drains():
    worker = MANIFESTS["compose.yaml"]["services"]["worker"]
    assert float(worker["stop_grace_period"].removesuffix("s")) > float(worker["environment"]["REDRIVE_DRAIN_SECONDS"])


def test_the_page_names_the_default():
    assert f"`drain_seconds` ({Settings.model_fields['drain_seconds'].default:g})" in (
        DOCS / "how-to" / "containers.md"
    ).read_text(encoding="utf-8")
