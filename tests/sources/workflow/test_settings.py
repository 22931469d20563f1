"""The settings `dlq_*`: from TOML, from YAML, from the environment with any prefix; all problems at once."""

from __future__ import annotations

import sys

import pytest

from redrive.errors import SettingsError
from redrive.settings import load

YAML = """
# Dead Letter Queue configuration
dlq_enabled: true
dlq_max_size: 500
dlq_default_retry_policy: linear  # Options: never, linear, exponential, immediate
dlq_default_max_retries: 2
dlq_retry_processor_enabled: false
dlq_retry_interval_seconds: 30
"""


def found(settings) -> tuple:
    return (
        settings.dlq_enabled, settings.dlq_max_size, settings.dlq_default_retry_policy,
        settings.dlq_default_max_retries, settings.dlq_retry_processor_enabled, settings.dlq_retry_interval_seconds,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [("mahavishnu.yaml", YAML), ("redrive.toml", YAML.replace(": l", ': "l'))])
def test_a_file_in_yaml_or_toml_gives_them(tmp_path, name, text):
    if name.endswith("toml"):
        text = text.replace('"linear', '"linear"').replace(": ", " = ")
    (tmp_path / name).write_text(text)
    assert found(load(tmp_path / name)) == (True, 500, "linear", 2, False, 30)


@pytest.mark.parametrize("prefix", ["REDRIVE_", "MAHAVISHNU_"])
def test_variables_with_any_prefix_give_them(monkeypatch, prefix):
    monkeypatch.setenv(f"{prefix}DLQ_MAX_SIZE", "200")
    monkeypatch.setenv(f"{prefix}DLQ_RETRY_PROCESSOR_ENABLED", "false")
    settings = load(prefix="" if prefix == "REDRIVE_" else prefix)
    assert (settings.dlq_max_size, settings.dlq_retry_processor_enabled) == (200, False)


def test_another_programs_variables_are_read_only_on_request(monkeypatch):
    monkeypatch.setenv("MAHAVISHNU_DLQ_MAX_SIZE", "200")
    assert load().dlq_max_size == 10_000


def test_another_programs_file_may_hold_its_own_keys(tmp_path):
    (tmp_path / "mahavishnu.yaml").write_text(YAML + "\nserver_name: mahavishnu\n")
    assert load(tmp_path / "mahavishnu.yaml", prefix="MAHAVISHNU_").dlq_max_size == 500


def test_all_problems_are_told_at_once_with_key_value_and_bound(monkeypatch):
    monkeypatch.setenv("MAHAVISHNU_DLQ_MAX_SIZE", "99")
    monkeypatch.setenv("MAHAVISHNU_DLQ_DEFAULT_MAX_RETRIES", "11")
    monkeypatch.setenv("MAHAVISHNU_DLQ_RETRY_INTERVAL_SECONDS", "4000")
    monkeypatch.setenv("MAHAVISHNU_DLQ_DEFAULT_RETRY_POLICY", "often")
    with pytest.raises(SettingsError) as refused:
        load(prefix="MAHAVISHNU_")
    told = str(refused.value)
    for part in ("MAHAVISHNU_DLQ_MAX_SIZE is '99'", "100 or more", "10 or less", "3600 or less", "'never', 'linear'"):
        assert part in told
    assert len(refused.value.problems) == 4


def test_yaml_without_its_extra_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "mahavishnu.yaml").write_text(YAML)
    with pytest.raises(SettingsError, match=r"redrive\[yaml\]"):
        load(tmp_path / "mahavishnu.yaml")


@pytest.mark.parametrize(("text", "told"), [("a: [", "not valid YAML"), ("- a", "must be a mapping")])
def test_a_broken_file_is_told(tmp_path, text, told):
    (tmp_path / "mahavishnu.yaml").write_text(text)
    with pytest.raises(SettingsError, match=told):
        load(tmp_path / "mahavishnu.yaml")
