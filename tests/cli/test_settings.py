from __future__ import annotations

import pytest
from typer.testing import CliRunner

from redrive import Redrive
from redrive.cli import app
from redrive.errors import SettingsError
from redrive.settings import Settings, load, masked


def problems(*arguments, **named):
    with pytest.raises(SettingsError) as caught:
        load(*arguments, **named)
    return caught.value.problems


def test_nothing_set_gives_the_defaults():
    settings = load()

    assert (settings.url, settings.lease_seconds, settings.sweep_seconds) == ("sqlite:///redrive.db", 60, 5)
    assert settings.retention.delivered == 7 * 86_400
    assert settings.retention.archived == 30 * 86_400
    assert settings.retention.failed is None


def test_arguments_win_over_the_environment_and_that_over_the_file(tmp_path, monkeypatch):
    (tmp_path / "redrive.toml").write_text("concurrency = 1\nprefetch = 1\nprocesses = 1")
    monkeypatch.setenv("REDRIVE_PREFETCH", "2")
    monkeypatch.setenv("REDRIVE_PROCESSES", "2")

    settings = load(processes=3)

    assert (settings.concurrency, settings.prefetch, settings.processes) == (1, 2, 3)


def test_an_argument_of_none_counts_as_not_given(monkeypatch):
    monkeypatch.setenv("REDRIVE_URL", "sqlite:///other.db")

    assert load(url=None).url == "sqlite:///other.db"


def test_all_problems_are_reported_at_once_under_the_names_the_user_wrote(tmp_path, monkeypatch):
    (tmp_path / "redrive.toml").write_text('lease_seconds = "1m"\nconcurency = 3\nlog_format = "xml"')
    monkeypatch.setenv("REDRIVE_PREFETCH", "many")
    monkeypatch.setenv("redrive_sweep_seconds", "0")

    assert problems(metrics_port=0) == [
        "concurency in redrive.toml is no setting; did you mean concurrency?",
        "REDRIVE_PREFETCH is 'many'; it must be a whole number, such as 64",
        "lease_seconds in redrive.toml is '1m'; it must be a number, such as 60",
        "redrive_sweep_seconds is '0'; it must be more than 0, such as 5",
        "log_format in redrive.toml is 'xml'; it must be one of 'console' or 'json', such as json",
        "argument metrics_port is 0; it must be 1 or more, such as 9464",
    ]


def test_an_unknown_argument_is_a_problem():
    assert problems(concurency=3) == ["argument concurency is no setting; did you mean concurrency?"]


def test_a_variable_that_is_nearly_a_setting_is_a_problem_and_others_are_not(monkeypatch):
    monkeypatch.setenv("REDRIVE_SOMETHING_ELSE_ALTOGETHER", "1")
    assert load()

    monkeypatch.setenv("REDRIVE_CONCURENCY", "3")
    assert problems() == ["REDRIVE_CONCURENCY is no setting; did you mean REDRIVE_CONCURRENCY?"]


@pytest.mark.parametrize("value", ["inf", "nan", "-1", "x", "86401", "1e300"])
def test_a_lease_that_makes_no_sense_is_refused(monkeypatch, value):
    monkeypatch.setenv("REDRIVE_LEASE_SECONDS", value)

    assert len(problems()) == 1


def test_a_file_that_was_asked_for_must_exist(tmp_path):
    assert "there is no such file" in problems("nowhere.toml")[0]


def test_a_file_that_is_no_toml_is_a_problem(tmp_path):
    (tmp_path / "redrive.toml").write_text("url = ")

    assert "not valid TOML" in problems()[0]


def test_names_are_read_from_text_and_from_lists(tmp_path, monkeypatch):
    monkeypatch.setenv("REDRIVE_QUEUES", "mail, default")
    assert load().queues == ("mail", "default")

    monkeypatch.delenv("REDRIVE_QUEUES")
    (tmp_path / "redrive.toml").write_text('queues = ["mail"]')
    assert load().queues == ("mail",)


def test_none_turns_a_retention_off(monkeypatch):
    monkeypatch.setenv("REDRIVE_RETENTION_DELIVERED_DAYS", "none")

    assert load().retention.delivered is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ana:s3cret@db/shop", "postgresql://ana:***@db/shop"),
        ("postgresql://ana:s3@cr/et@db/shop", "postgresql://ana:***@db/shop"),
        ("postgresql://db/shop?password=s3cret&x=1", "postgresql://db/shop?password=***&x=1"),
        ("postgresql://db/shop?password=s3 c;ret&x=1", "postgresql://db/shop?password=***&x=1"),
        ("ana:s3cret@db", "***@db"),
        ("sqlite:///redrive.db", "sqlite:///redrive.db"),
    ],
)
def test_passwords_are_never_shown(url, shown):
    assert masked(url) == shown


def test_a_bad_url_is_reported_without_its_password(monkeypatch):
    monkeypatch.setenv("REDRIVE_URL", "ana:s3cret@db")

    assert problems() == ["REDRIVE_URL is '***@db'; it must be a URL, such as sqlite:///redrive.db"]


def test_every_setting_has_a_description_and_an_example():
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.examples, name


def test_check_reports_every_problem_and_fails(redrive, monkeypatch):
    monkeypatch.setenv("REDRIVE_PREFETCH", "many")
    monkeypatch.setenv("REDRIVE_LEASE_SECONDS", "1m")

    done = redrive("check", code=1)

    assert "REDRIVE_PREFETCH" in done.stderr
    assert "REDRIVE_LEASE_SECONDS" in done.stderr
    assert redrive.json("check", code=1)["ok"] is False


def test_check_opens_store_and_application(redrive, monkeypatch):
    assert redrive.json("check") == {"ok": True, "url": redrive.url, "problems": [], "notes": []}

    monkeypatch.setenv("REDRIVE_APP", "nowhere:app")
    assert "there is no module 'nowhere'" in redrive("check", code=1).stderr


def test_check_of_a_damaged_store_fails(redrive):
    redrive.path.write_text("Dear operator, " * 1000)

    assert redrive.json("check", code=1)["ok"] is False


def test_check_makes_no_database(tmp_path):
    done = CliRunner().invoke(app, ["--url", f"sqlite:///{tmp_path}/new.db", "check"])

    assert done.exit_code == 0
    assert not (tmp_path / "new.db").exists()


def test_every_command_but_demo_has_json(redrive):
    commands = ["worker", "enqueue", "ls", "show", "groups", "replay", "archive", "restore", "cancel", "purge", "edit"]
    commands += ["explain", "stats", "top", "audit", "migrate", "check", "queues"]

    for command in commands:
        assert "--json" in redrive(command, "--help").stdout, command


def test_migrate_is_safe_to_repeat(redrive):
    assert redrive.json("migrate") == {"url": redrive.url, "ready": True, "notes": []}
    assert redrive.json("migrate") == {"url": redrive.url, "ready": True, "notes": []}


def test_an_unknown_command_is_a_usage_error(redrive):
    redrive("explode", code=2)


def test_check_of_a_missing_file_says_that_it_will_be_made(tmp_path):
    done = CliRunner().invoke(app, ["--url", f"sqlite:///{tmp_path}/new.db", "check"])

    assert "all is well" in done.stdout
    assert "new.db' does not exist yet: `redrive enqueue` or a worker creates it at first use" in done.stdout


def test_check_does_not_promise_a_file_where_none_can_be_made(tmp_path):
    done = CliRunner().invoke(app, ["--url", f"sqlite:///{tmp_path}/nowhere/new.db", "check"])

    assert done.exit_code == 1
    assert "is no folder that this user may write to" in done.stderr
    assert "will be made" not in done.output


@pytest.mark.parametrize("written", [["--url", "{url}"], ["--url={url}"]])
def test_the_url_may_stand_after_the_command(redrive, failures, written):
    given = [word.format(url=redrive.url) for word in written]

    for command in (["ls", *given, "-n", "2"], ["queues", "ls", *given], ["queues", *given, "ls"]):
        done = CliRunner().invoke(app, command)
        assert (done.exit_code, done.stderr) == (0, ""), done.output


def test_what_stands_behind_two_dashes_is_no_option(redrive):
    done = redrive("enqueue", "note.taken", "--", '"--url"')

    assert redrive.json("show", done.stdout.strip())["payload"] == "--url"


@pytest.mark.parametrize("command", [[], ["queues"], ["subscriptions"], ["kafka"], ["kafka", "dlq"]])
def test_every_line_of_the_help_is_a_whole_sentence(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    shown = CliRunner().invoke(app, [*command, "-h"]).stdout.replace("[ARGS]...", "")

    assert "..." not in shown
    assert command or "70 a worker" in shown


def test_the_help_says_that_an_idle_worker_waits_for_what_is_due_later():
    shown = " ".join(CliRunner().invoke(app, ["worker", "-h"]).stdout.split())
    assert "it waits for retries and for letters due later" in shown


def test_lists_are_called_ls_and_the_older_name_works(redrive, failures):
    assert redrive.json("queues", "list") == redrive.json("queues", "ls") == redrive.json("queues")
    assert redrive.json("queues", "ls", "-n", "1")["queues"] == redrive.json("queues")["queues"][:1]
    shown = CliRunner().invoke(app, ["queues", "-h"]).stdout
    assert "\n  ls " in shown
    assert "\n  list " not in shown


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite:///%3Amemory%3A"])
def test_a_database_in_memory_is_refused_with_the_way_out(url):
    with pytest.raises(SettingsError, match=r"cannot keep letters in ':memory:': .* memory:// keeps them in memory"):
        Redrive(url)


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("sqlite:///letters.db?mode=ro", "mode"),
        ("sqlite:///letters.db?mode=ro&cache=shared", "mode, cache"),
        ("sqlite:///letters.db?", "an empty one"),
        ("memory://?name=x", "name"),
    ],
)
def test_parameters_that_would_be_ignored_are_refused(url, named, tmp_path):
    with pytest.raises(SettingsError, match=rf"with parameters \({named}\): such a URL takes none; leave them out"):
        Redrive(url)
    assert list(tmp_path.iterdir()) == []


def test_a_question_mark_in_a_files_name_is_written_as_an_escape(tmp_path):
    app = Redrive("sqlite:///what%3F.db")
    app.sync.enqueue("order.created", {})
    app.sync.close()

    assert (tmp_path / "what?.db").exists()


APP = """
from redrive import Redrive
app = Redrive()
app.add_handler("order", print)
"""


def test_check_lists_the_backoff_functions_that_waiting_letters_name(redrive, tmp_path, monkeypatch):
    for _ in range(2):
        redrive("enqueue", "order", "{}", "--policy", "custom:name=payments")
    assert redrive.json("check")["notes"] == [
        "waiting letters name backoff functions of the application: 'payments' (2)"
    ]
    monkeypatch.setenv("REDRIVE_URL", redrive.url)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "unknowing.py").write_text(APP)
    monkeypatch.setenv("REDRIVE_APP", "unknowing:app")
    [problem] = redrive.json("check", code=1)["problems"]
    assert "'payments' is not registered: 2 waiting letters name it and stay pending" in problem
    (tmp_path / "knowing.py").write_text(APP + "app.backoff('payments', float)\n")
    monkeypatch.setenv("REDRIVE_APP", "knowing:app")
    assert redrive.json("check")["notes"] == ["backoff functions: 'payments'"]
