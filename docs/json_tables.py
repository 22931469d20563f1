# ruff: noqa: INP001 - it stands beside generate.py, which is run by path
"""
The parts on JSON: the keys of everything that a command prints.

Owns which structs are shapes of JSON, and a field's type in the words of JSON. Knows no page.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import field_tables
import msgspec
from page_tables import first_line, table

SHAPES = {
    "redrive.desk.look.views": ("Listing", "LetterRow", "LetterSheet", "Header", "TryView", "CycleView"),
    "redrive.desk.look.group": ("Groups", "GroupView"),
    "redrive.desk.look.lens": ("LensGroups", "LensView"),
    "redrive.desk.act.acts": ("Done",),
    "redrive.desk.act.outcome": ("PlanOutcome",),
    "redrive.desk.act.plan": ("Plans", "PlanView"),
    "redrive.desk.act.copy": ("Copied", "NotCopied"),
    "redrive.desk.dlq": ("DlqEvents", "DlqEvent", "DlqEventDetail"),
    "redrive.desk.act.edit": ("EditedLetter",),
    "redrive.desk.look.explain": ("Explanation", "TryExplained", "WhatIf", "Supposed"),
    "redrive.core.waiting": ("Hold",),
    "redrive.desk.look.stats": ("Stats", "FailedWeek", "Histories", "OldestFailed", "WorkerView", "BreakerView"),
    "redrive.desk.act.queues": ("Queues", "QueueView"),
    "redrive.desk.look.audit": ("AuditLog", "AuditLine"),
    "redrive.desk.act.subscriptions": ("Subscriptions",),
    "redrive.stores.contract": ("Receipt", "Subscription"),
    "redrive.cli.run.upkeep": ("Checked", "Migrated"),
    "redrive.cli.act.spool": ("SpoolStats", "SpoolListing", "SpooledLetter"),
    "redrive.demo.story": ("Outcome",),
}


def shapes() -> str:
    """Return a section for each JSON shape."""
    found = (getattr(import_module(module), name) for module, names in SHAPES.items() for name in names)
    return "\n\n".join(_shape(struct) for struct in found)


def _shape(struct: Any) -> str:
    rows = (_key(struct, field.name) for field in msgspec.structs.fields(struct))
    return f"### {struct.__name__}\n\n{first_line(struct)}\n\n{table(('key', 'value', 'means'), rows)}"


def _key(struct: Any, name: str) -> tuple[str, ...]:
    return f"`{name}`", _type(struct, name), field_tables.meaning(struct.__name__, name)


_WORDS = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "datetime": "instant"}


def _type(struct: Any, name: str) -> str:
    """Return a field's type in the words of JSON."""
    return _spelled(str(struct.__annotations__[name]))


def _spelled(text: str) -> str:
    *others, last = (part.strip() for part in _alternatives(text))
    if others:
        return " or ".join(_spelled(part) for part in (*others, last)).replace("None", "null")
    if match := re.fullmatch(r"(list|tuple)\[(.*?)(, \.\.\.)?\]", last):
        return f"list of {_spelled(match[2])}"
    if match := re.fullmatch(r"dict\[str, (.*)\]", last):
        return f"object of {_spelled(match[1])}"
    words = {**_WORDS, "Any": "anything", "msgspec.Raw": "JSON", "None": "null"}
    return words.get(last) or f"[{last}](#{last.lower()})"


def _alternatives(text: str) -> list[str]:
    """Split at every bar outside brackets."""
    return re.split(r"\|(?![^\[]*\])", text)
