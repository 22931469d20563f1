"""One word, one meaning: no two classes of these rooms have the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "redrive"
ROOMS = ("core", "engine", "signals", "desk")


def classes_by_name() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for room in ROOMS:
        for path in (SOURCE / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name.lstrip("_")].add(str(path.relative_to(SOURCE)))
    return found


def test_no_class_name_means_two_things():
    found = classes_by_name()
    assert len(found) > 100
    assert {name: sorted(files) for name, files in found.items() if len(files) > 1} == {}
