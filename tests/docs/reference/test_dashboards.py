"""The dashboards name metrics that exist, and leave none of a Kafka consumer's or a pipeline's out."""

from __future__ import annotations

import json
import re

import pytest
from tests.docs.pages import DOCS

from redrive.signals.metrics import METRICS
from redrive.sources.kafka.metrics import KAFKA_METRICS
from redrive.sources.pipeline.admin.signals.metrics import PIPELINE_METRICS

DASHBOARDS = sorted((DOCS / "dashboards").glob("*.json"))
KNOWN = {metric.name: metric for metric in (*METRICS, *KAFKA_METRICS, *PIPELINE_METRICS)}


def queries(dashboard):
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return panels + [each["definition"] for each in dashboard["templating"]["list"] if "definition" in each]


def named(dashboard):
    """Return the metrics that are asked for; of a histogram each of its series counts for it."""
    for name in re.findall(r"\bredrive_\w+", " ".join(queries(dashboard))):
        stem = re.sub(r"_(bucket|count|sum)$", "", name)
        yield stem if stem in KNOWN and KNOWN[stem].type == "histogram" else name


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_metric_on_a_dashboard_exists(path):
    assert set(named(json.loads(path.read_text()))) - set(KNOWN) == set()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_label_on_a_dashboard_exists(path):
    labels = {label for metric in KNOWN.values() for label in metric.labels} | {"le"}
    text = path.read_text()
    shown = set(re.findall(r"{{(\w+)}}", text))
    grouped = {each.strip() for found in re.findall(r"by \(([^)]*)\)", text) for each in found.split(",")}
    assert (shown | grouped) - labels == set()


def test_the_kafka_dashboard_shows_every_metric_of_a_consumer():
    shown = set(named(json.loads((DOCS / "dashboards" / "kafka.json").read_text())))
    assert {metric.name for metric in KAFKA_METRICS} - shown == set()


def test_the_pipeline_dashboard_shows_every_metric_of_a_pipeline():
    shown = set(named(json.loads((DOCS / "dashboards" / "pipeline.json").read_text())))
    assert {metric.name for metric in PIPELINE_METRICS} - shown == set()
