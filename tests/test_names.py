"""One word, one meaning: no two classes of the package have the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "redrive"
STORES = {"stores/memory", "stores/sqlite", "stores/postgres"}
# Drivers do the same job for another server or library, so the same name means the same thing in each of them.
TWINS = {
    "Act": STORES,
    "Compiled": STORES,
    "NextPage": STORES,
    "Claimer": STORES,
    "Transaction": STORES,
    "Awaited": {"sources/outbox/drivers"},
    "Blocking": {"sources/outbox/drivers"},
    # the workflow queue's users know its own by this name; its values stand for policies of core
    "RetryPolicy": {"core/policy", "sources/workflow"},
}


def classes_by_name() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].add(str(path.relative_to(SOURCE)))
    return found


def are_twins(name: str, files: set[str]) -> bool:
    rooms = TWINS.get(name, set())
    return all(any(file.startswith(f"{room}/") for room in rooms) for file in files)


def test_no_class_name_means_two_things():
    found = classes_by_name()
    assert len(found) > 400
    twice = {name: sorted(files) for name, files in found.items() if len(files) > 1}
    assert {name: files for name, files in twice.items() if not are_twins(name, set(files))} == {}
    assert set(twice) == set(TWINS)  # an exception that nothing needs any more goes
