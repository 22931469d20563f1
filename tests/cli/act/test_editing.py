from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def letter_id(redrive):
    return redrive.fill(lambda mill: mill.failed(payload=b'{"order":17,"big":123456789012345678901234567890}'))


@pytest.fixture
def editor(tmp_path, monkeypatch):
    """Return a way to choose what the editor does with its file."""

    def choose(code: str) -> None:
        script = tmp_path / "editor.py"
        script.write_text(f"import sys, pathlib\npath = pathlib.Path(sys.argv[-1])\ntext = path.read_text()\n{code}\n")
        monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return choose


def kept_text(done) -> str:
    """Return what is in the file that the operator was told of."""
    [said] = [line for line in done.stderr.splitlines() if "your text is kept in " in line]
    return Path(said.partition("kept in ")[2]).read_text()


def files_left(folder: Path) -> list[Path]:
    return list(folder.glob("redrive-*"))


def test_an_edit_changes_what_was_edited_and_nothing_else(redrive, letter_id, editor, tmp_path):
    editor("path.write_text(text.replace('17', '18'))")

    done = redrive("edit", letter_id, "--yes", "--reason", "wrong order", "--by", "ana")

    assert '-  "order": 17' in done.stdout
    assert '+  "order": 18' in done.stdout
    shown = redrive.json("show", letter_id)
    assert shown["payload"] == {"order": 18, "big": 123456789012345678901234567890}
    assert (shown["payload_version"], shown["letter"]["status"]) == (2, "failed")
    assert files_left(tmp_path) == []


def test_an_edit_is_asked_about(redrive, letter_id, editor):
    editor("path.write_text(text.replace('17', '18'))")

    done = redrive("edit", letter_id, answer="n\n", code=1)

    assert redrive.json("show", letter_id)["payload_version"] == 1
    assert '"order": 18' in kept_text(done)


def test_an_unchanged_text_is_not_written(redrive, letter_id, editor, tmp_path):
    editor("pass")

    assert "unchanged" in redrive("edit", letter_id, "--yes", code=1).stderr
    assert files_left(tmp_path) == []


def test_text_that_is_no_json_is_refused_and_kept_in_its_file(redrive, letter_id, editor, tmp_path):
    editor("path.write_text('{order: 18}')")

    done = redrive("edit", letter_id, "--yes", code=1)

    assert "not valid JSON" in done.stderr
    assert kept_text(done) == "{order: 18}"
    assert redrive.json("show", letter_id)["payload_version"] == 1


@pytest.mark.slow
def test_an_edit_that_somebody_else_overtook_is_refused_with_a_reason(redrive, letter_id, editor, tmp_path):
    """The other edit happens while the editor is open."""
    overtake = (
        "import subprocess\n"
        f"command = [sys.executable, '-m', 'redrive.cli', '--url', {redrive.url!r}, 'edit', {letter_id!r}]\n"
        "subprocess.run([*command, '--payload', '{\"order\": 99}', '--yes'], check=True, capture_output=True)\n"
        "path.write_text(text.replace('17', '18'))"
    )
    editor(overtake)

    done = redrive("edit", letter_id, "--yes", code=1)

    assert "read it again" in done.stderr
    assert redrive.json("show", letter_id)["payload"] == {"order": 99}
    assert '"order": 18' in kept_text(done)


def test_an_editor_that_fails_or_is_missing_writes_nothing(redrive, letter_id, editor, monkeypatch, tmp_path):
    editor("sys.exit(3)")
    assert "ended with code 3" in redrive("edit", letter_id, code=1).stderr

    monkeypatch.setenv("EDITOR", "no-such-editor")
    assert "set EDITOR to another" in redrive("edit", letter_id, code=1).stderr
    assert files_left(tmp_path) == []


def test_a_payload_can_be_given_without_an_editor(redrive, letter_id):
    done = redrive.json("edit", letter_id, "--payload", '{"order": 18}', "--yes")

    assert (done["id"], done["payload_version"]) == (letter_id, 2)
    assert redrive.json("show", letter_id)["payload"] == {"order": 18}
