"""The settings on the migration page are those that exist, with the defaults that they have."""

from __future__ import annotations

import re
from dataclasses import fields
from enum import Enum
from typing import NamedTuple

import pytest
from tests.docs.pages import DOCS

from redrive.sources.kafka import ExecutionConfig, KafkaConfig
from redrive.sources.kafka.environment import read_configs, unread
from redrive.sources.kafka.offsets.done_map import read_map, write_map

PAGE = DOCS / "how-to" / "migrate-from-pyrallel.md"
OURS = {"execution": ExecutionConfig(), "kafka": KafkaConfig()}
ROOMS = {"EXECUTION": "execution", "KAFKA": "kafka"}


class Row(NamedTuple):
    theirs: str
    their_default: str
    ours: str
    our_default: str
    note: str


def rows():
    table = PAGE.read_text().partition("<!-- settings -->")[2].partition("\n\nlibrdkafka")[0]
    lines = [line for line in table.strip().splitlines() if line.startswith("| `")]
    return [Row(*(cell.strip().strip("`") for cell in line.strip("|").split("|"))) for line in lines]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.theirs)
def test_a_setting_of_ours_exists_and_has_the_default_that_the_page_says(row):
    if row.ours == "(none)":
        assert row.our_default == ""
        return
    room, _, name = row.ours.partition(".")
    value = getattr(OURS[room], name)
    assert row.our_default == ("(empty)" if value == "" else str(value))


def test_every_setting_of_theirs_is_on_the_page_with_its_default():
    theirs = pytest.importorskip("pyrallel_consumer.config")
    kinds = (
        theirs.KafkaConfig, theirs.ParallelConsumerConfig, theirs.ExecutionConfig, theirs.AsyncConfig,
        theirs.ProcessConfig, theirs.MetricsConfig,
    )  # fmt: skip
    found = {}
    for kind in kinds:
        for name, field in kind.model_fields.items():
            default = field.default.value if isinstance(field.default, Enum) else field.default
            if not isinstance(default, kinds):
                found[f"{kind.__name__}.{name}"] = str(default)
    assert {row.theirs: row.their_default for row in rows()} == found


def test_settings_that_the_text_names_exist():
    text = PAGE.read_text()
    known = {field.name for config in OURS.values() for field in fields(config)}
    named = set(re.findall(r"\b((?:stall|dlq|commit|max_revoke)_\w+)\b", text))
    assert named - known == {"dlq_head", "dlq_payload_mode"}  # a value, and one that only they have


def test_variables_that_the_text_names_are_read():
    for prefix, name in re.findall(r"`(KAFKA|EXECUTION)_((?:(?!__)[A-Z_])+)`", PAGE.read_text()):
        made = dict(zip(ROOMS.values(), read_configs({f"{prefix}_{name}": "7"}), strict=True))
        assert getattr(made[ROOMS[prefix]], name.lower()) in (7, ("7",))


def test_old_variables_that_the_text_names_are_read_or_told():
    names = re.findall(r"`(\w+_CONFIG__\w+|PARALLEL_CONSUMER_[A-Z_]+|PROCESS_[A-Z_]+)`", PAGE.read_text())
    untold = [name for name in names if not unread({name: "7"})]
    assert len(untold) == 4
    for name in untold:
        mode = {"EXECUTION_MODE": "process" if "PROCESS" in name else "async"}
        assert read_configs({name: "7", **mode}) != read_configs(mode)


@pytest.mark.parametrize("completed", [{5, 6, 9}, set(range(20, 900)), set(range(10, 3000, 3))])
def test_metadata_that_the_other_consumer_left_is_not_taken_for_ours(completed):
    encoder = pytest.importorskip("pyrallel_consumer.control_plane.metadata_encoder").MetadataEncoder()
    assert not read_map(4, encoder.encode_metadata(completed, 4), end=10_000)


def test_our_metadata_is_not_taken_for_theirs(caplog):
    encoder = pytest.importorskip("pyrallel_consumer.control_plane.metadata_encoder").MetadataEncoder()
    assert encoder.decode_metadata(write_map(4, [(6, 9), (20, 500)])) == set()
