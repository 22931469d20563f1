"""A source is a value: presets, options, references to secrets, and every problem at once."""

from __future__ import annotations

import pytest

from redrive.errors import SettingsError
from redrive.settings import load
from redrive.sources.webhook.secrets import read_reference, resolve
from redrive.sources.webhook.source import PRESETS, Source, read_source

SECRET = ["env:A_SECRET"]


def problems(make):
    with pytest.raises(SettingsError) as refused:
        make()
    return refused.value.problems


@pytest.mark.parametrize("preset", PRESETS)
def test_each_preset_has_a_constructor_and_reads_from_a_table(preset):
    own = {"twilio": {"public_url": "https://x.example/hooks/twilio"}, "hmac": {"header": "X-Sig"}}.get(preset, {})
    made = getattr(Source, preset)(secrets=SECRET, **own)
    assert (made.preset, made.secrets) == (preset, ("env:A_SECRET",))
    assert read_source(made.name, {"preset": preset, "secrets": SECRET, **own}) == made


def test_all_problems_are_reported_at_once():
    found = problems(lambda: Source.hmac("Not A Name", dedupe="hash", events=[], forward="ftp://x"))
    assert len(found) == 6
    assert all(problem.startswith("source 'Not A Name': ") for problem in found)


def test_a_source_without_a_secret_must_say_that_it_is_insecure():
    assert "insecure = true" in problems(Source.github)[0]
    assert Source.github(insecure=True).insecure
    assert problems(lambda: Source.github(secrets=SECRET, insecure=True))


def test_a_secret_that_is_written_out_is_refused_and_never_shown():
    found = problems(lambda: Source.stripe(secrets=["whsec_marker_8f3a", "env:FINE"]))
    assert found == [
        (
            "source 'stripe': a secret is not a reference; write it as env:NAME or file:PATH, "
            "with ' until 2027-01-31' behind it while a secret is replaced"
        )
    ]


def test_unknown_options_and_presets_are_named():
    found = problems(lambda: read_source("shop", {"preset": "strip", "secret": SECRET}))
    assert any("secret is no option; did you mean secrets?" in problem for problem in found)
    assert any("preset is 'strip' and must be one of standard, stripe" in problem for problem in found)


def test_twilio_needs_to_know_its_own_address():
    assert "public_url is missing" in problems(lambda: Source.twilio(secrets=SECRET))[0]


@pytest.mark.parametrize(
    "url",
    ["ftp://x/", "http://", "//x", "http://user:pass@x/", "http://x/#y", "http://x/\r\nHost: y", "http://x:99999/"],
)
def test_a_forward_goes_to_a_plain_http_address(url):
    assert "its forward: url must be like" in problems(lambda: Source.github(insecure=True, forward=url))[0]


def test_a_reference_may_have_an_end():
    assert read_reference("env:OLD until 2027-01-31") == ("env:OLD", 1_801_353_600.0)
    assert read_reference("file:/run/secrets/a b until 2027-01-31T12:00:00+01:00") == (
        "file:/run/secrets/a b",
        1_801_393_200.0,
    )
    assert read_reference("env:OLD until tomorrow") is None
    assert read_reference("whsec_123") is None


def test_settings_resolve_references(monkeypatch, tmp_path):
    (tmp_path / "key").write_text("from a file, long enough\n")
    monkeypatch.setenv("A_SECRET", "from the environment")
    found = resolve("x", ["env:A_SECRET", f"file:{tmp_path / 'key'}"], load().secret, is_standard=False)
    assert [secret.key for secret in found] == [b"from the environment", b"from a file, long enough"]


def test_an_absent_empty_or_short_secret_refuses_to_start(monkeypatch, tmp_path):
    (tmp_path / "empty").touch()
    monkeypatch.setenv("SHORT", "marker_8f3a")
    texts = ["env:ABSENT", "env:SHORT", f"file:{tmp_path / 'empty'}", f"file:{tmp_path / 'absent'}", "marker_8f3a"]
    found = problems(lambda: resolve("source 'x'", texts, load().secret, is_standard=False))
    assert len(found) == 5
    assert "is 11 bytes long and must have 16 or more" in found[1]
    assert "marker_8f3a" not in "".join(found)
