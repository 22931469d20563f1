"""The reference is complete and current: whoever adds a name and forgets the page is told here."""

from __future__ import annotations

import importlib.util
import inspect
import re
import tomllib
from dataclasses import fields

import apsw
import msgspec
import pytest
from tests.docs.pages import DOCS, PAGES, name

import redrive
from redrive.core.facts import FACTS
from redrive.core.query import FIELDS
from redrive.settings import PREFIX, Settings
from redrive.signals.metrics import METRICS
from redrive.sources import kafka
from redrive.sources.kafka.config import ExecutionConfig, KafkaConfig
from redrive.sources.kafka.facts import KAFKA_FACTS
from redrive.sources.kafka.metrics import KAFKA_METRICS
from redrive.stores.sqlite import SqliteStore


def load_generator():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load_generator()
COMMANDS = dict(generate.commands())


def reference(page: str) -> str:
    return (DOCS / "reference" / page).read_text()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_generated_parts_are_current(page):
    assert generate.render(page.read_text()) == page.read_text(), "run `python docs/generate.py`"


def test_every_generated_part_is_on_some_page():
    everything = "".join(page.read_text() for page in PAGES)
    assert [part for part in generate.PARTS if f"<!-- generated: {part} -->" not in everything] == []


@pytest.mark.parametrize("setting", list(Settings.model_fields))
def test_every_setting_is_documented(setting):
    assert f"| `{setting}` | `{PREFIX}{setting.upper()}` |" in reference("settings.md")


@pytest.mark.parametrize(("room", "config"), [("execution", ExecutionConfig), ("kafka", KafkaConfig)])
def test_every_key_of_the_kafka_consumer_is_documented_and_no_other(room, config):
    means = tomllib.loads(reference("kafka-settings.toml"))[room]
    assert list(means) == [each.name for each in fields(config)]
    assert [name for name in means if f"| `{name}` |" not in reference("kafka-settings.md")] == []


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_and_each_of_its_options_is_documented(command):
    page = reference("cli.md")
    section = page.split(f"## {command}\n")[1].split("\n## ")[0]
    options = [option for param in COMMANDS[command].params for option in param.opts if option.startswith("-")]
    assert [option for option in options if f"`{option}`" not in section and option not in {"-h", "--help"}] == []


@pytest.mark.parametrize("command", list(COMMANDS))
def test_what_every_command_prints_as_json_is_documented(command):
    printed = any("--json" in param.opts for param in COMMANDS[command].params)
    assert printed == (f"`{command}`" in reference("json.md"))


@pytest.mark.parametrize("metric", [*METRICS, *KAFKA_METRICS], ids=lambda metric: metric.name)
def test_every_metric_is_documented(metric):
    [line] = [line for line in reference("metrics.md").splitlines() if line.startswith(f"| `{metric.name}` |")]
    assert all(f"`{label}`" in line for label in metric.labels)


def test_the_buckets_are_documented():
    for metric in (*METRICS, *KAFKA_METRICS):
        assert ", ".join(f"{bucket:g}" for bucket in metric.buckets[:-1]) in reference("metrics.md")


@pytest.mark.parametrize("fact", [*FACTS, *KAFKA_FACTS], ids=lambda fact: fact.__name__)
def test_every_fact_and_each_of_its_fields_is_documented(fact):
    [line] = [line for line in reference("facts.md").splitlines() if line.startswith(f"| `{fact.name}` |")]
    assert all(f"`{field.name}`" in line for field in msgspec.structs.fields(fact))


@pytest.mark.parametrize("error", generate.error_classes(), ids=lambda error: error.__name__)
def test_every_error_is_documented(error):
    assert f"| `{error.__name__}` |" in reference("errors.md")


@pytest.mark.parametrize("field", list(FIELDS))
def test_every_field_of_queries_is_documented(field):
    assert re.search(rf"^\| `{field}[.`]", reference("queries.md"), re.MULTILINE)


@pytest.mark.parametrize("public", redrive.__all__)
def test_every_public_name_is_documented(public):
    assert f"| `{public}` |" in reference("python.md")


@pytest.mark.parametrize("public", kafka.__all__)
def test_every_public_name_of_the_kafka_consumer_is_documented_with_its_methods(public):
    section = reference("kafka-python.md").split(f"### {public}\n")[1].split("\n##")[0]
    kind = getattr(kafka, public)
    assert generate.first_line(kind) in section
    methods = [each for each in dir(kind) if not each.startswith("_") and is_ours(kind, each)]
    assert [each for each in methods if not re.search(rf"^`(await )?{each}[(`]", section, re.MULTILINE)] == []


def is_ours(kind, method):
    """Whether *method* is a method that a class of ours defines, and not its base in some library."""
    owner = next((base for base in kind.__mro__ if method in vars(base)), object)
    thing = inspect.getattr_static(kind, method)
    return owner.__module__.startswith("redrive.") and (inspect.isfunction(thing) or isinstance(thing, property))


async def test_the_sql_of_the_page_runs_and_every_index_is_explained(tmp_path):
    store = SqliteStore(tmp_path / "letters.db")
    await store.open()
    await store.close()
    connection = apsw.Connection(str(tmp_path / "letters.db"))
    explained = reference("sqlite.md").split("## Tables")[0]
    for block in re.findall(r"```sql\n(.*?)```", explained, re.DOTALL):
        connection.execute(block)
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL").fetchall()
    indexes = [name for (name,) in names if name != "waits_seq" and not name.startswith("error_text_")]
    assert [name for name in indexes if f"`{name}`" not in explained] == []
    columns = [row[1] for row in connection.execute("PRAGMA table_info(events)")]
    assert [column for column in columns if f"`{column}`" not in explained] == []
