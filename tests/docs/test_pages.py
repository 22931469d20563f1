"""What pages show is true: code runs, commands exist, links lead somewhere."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import types

import pytest
import typer.main
from tests.docs.pages import DOCS, PAGES, ROOT, blocks, console, name, prose

from redrive.cli.root import app as command_line
from redrive.settings import PREFIX, Settings

CODE = [page for page in PAGES if blocks(page, "python")]
COMMANDS = [(name(page), shown.command) for page in PAGES for shown in console(page) if shown.command[0] == "redrive"]
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", CODE, ids=name)
async def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    monkeypatch.chdir(tmp_path)
    for block in blocks(page, "python"):
        code = compile(block.code, name(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if block.runs:
            result = eval(code, vars(module))  # noqa: S307 - our own pages; a block with await is a coroutine
            if inspect.iscoroutine(result):
                await result


# By tests/sources/outbox and tests/sources/kafka, with servers, by test_testing_page, as files, and by tests/examples.
_RUN_ELSEWHERE = {
    "how-to/django.md",
    "how-to/fastapi.md",
    "how-to/move-from-a-kafka-loop.md",
    "how-to/outbox.md",
    "how-to/test-your-handlers.md",
    "tutorial/kafka.md",
}


def test_only_code_that_needs_other_packages_is_not_run():
    kept = {(name(page), block.code.splitlines()[0]) for page in CODE for block in blocks(page, "python")
            if not block.runs and name(page) not in _RUN_ELSEWHERE}  # fmt: skip
    assert kept == {
        ("how-to/move-from-celery-or-rq.md", "from celery import Celery"),
        ("how-to/move-from-celery-or-rq.md", "from datetime import timedelta"),
        ("how-to/move-from-a-hand-made-inbox.md", "import sqlite3"),
        ("how-to/use-from-sync-code.md", "from flask import Flask, request"),
        ("how-to/use-from-sync-code.md", "from django.http import JsonResponse"),
        ("tutorial/pipeline.md", "import asyncio"),  # it serves until it is stopped; tests/examples runs its like
    }


@functools.cache
def commands():
    """Return the command line as it can be looked at; making it takes longer than any test here."""
    return typer.main.get_command(command_line)


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=lambda value: value if isinstance(value, str) else None)
def test_commands_and_options_that_pages_show_exist(page, command):
    found = root = commands()
    words = [word for word in command[1:] if not word.startswith("-")]
    for word in words:
        if word in getattr(found, "commands", {}):
            found = found.commands[word]
    assert found.name != "redrive", f"{page} shows an unknown command: {command}"
    known = {option for param in (*root.params, *found.params) for option in param.opts} | {"--help"}
    assert [word for word in command[1:] if re.match(r"--?[a-z]", word) and word not in known] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_variable_that_a_page_names_is_a_setting(page):
    named = set(re.findall(rf"\b{PREFIX}[A-Z_]+\b", page.read_text()))
    assert named <= {f"{PREFIX}{setting.upper()}" for setting in Settings.model_fields} | {f"{PREFIX}CONFIG"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_pages_and_headings_that_exist(page):
    for link in LINK.findall(prose(page)):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), link
        assert not anchor or anchor in headings(target.read_text()), link


def headings(text: str) -> set[str]:
    """Return the anchors that the site makes of the headings."""
    found = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in found}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_page_is_in_the_navigation(page):
    assert f"{name(page)}\n" in (ROOT / "mkdocs.yml").read_text()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_name_no_machine_of_whoever_wrote_them(page):
    assert not re.search(r"/(home|root|tmp|work|Users)/", page.read_text())


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "reference"], ids=name)
def test_one_sentence_a_line(page):
    """In prose, that is: lists, tables and definitions keep what belongs together on one line."""
    lines = [line for line in prose(page).splitlines() if line and not re.match(r"[|:#*\-\d<>]|\s", line)]
    assert [line for line in lines if re.search(r"[a-z`)]\. [A-Z`]", line)] == []


def test_the_docs_are_not_empty():
    assert len(PAGES) > 25
    assert len(COMMANDS) > 40
    assert sum(len(blocks(page, "python")) for page in CODE) > 20
    assert (DOCS / "index.md") in PAGES
