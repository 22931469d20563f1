"""
YAML and JSON as plain values.

Owns what a text may hold: no tags, no key twice, no alias that grows beyond measure. Whatever the text, nothing but
a SettingsError leaves. Knows no graph.
"""

from __future__ import annotations

from typing import Any

import yaml

from redrive.errors import SettingsError

LARGEST = 2 * 1024 * 1024  # characters of a text
_MOST_VALUES = 200_000  # with every alias written out
_DEEPEST = 200  # levels


def plain_values(text: str) -> Any:
    """Return what the YAML or JSON *text* holds; raise SettingsError if it cannot be read."""
    if len(text) > LARGEST:
        raise SettingsError([f"it has {len(text)} characters; a graph may have {LARGEST}"])
    try:
        return _constructed(yaml.SafeLoader(text))
    except SettingsError:
        raise
    except yaml.YAMLError as error:
        raise SettingsError([f"it is no YAML: {_one_line(error)}"]) from None
    except RecursionError:
        raise SettingsError(["it is nested too deeply"]) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # The reader raises these for numbers, dates and merges that look right and are not.
        raise SettingsError([f"it holds a value that cannot be read: {_one_line(error)}"]) from None


def _constructed(loader: yaml.SafeLoader) -> Any:
    root = loader.get_single_node()
    _refuse(_problems(root))
    return None if root is None else loader.construct_document(root)


def _refuse(problems: list[str]) -> None:
    if problems:
        raise SettingsError(problems)


def _problems(root: yaml.Node | None) -> list[str]:
    if root is None:
        return []
    sizes: dict[int, int] = {}
    if _size(root, sizes, set()) > _MOST_VALUES:
        return [f"its aliases stand for more than {_MOST_VALUES} values; write fewer of them"]
    return _twice(root, set())


def _size(node: yaml.Node, sizes: dict[int, int], open_nodes: set[int], depth: int = 0) -> int:
    """Return how many values *node* holds with its aliases written out."""
    if id(node) in open_nodes:
        raise SettingsError(["an alias stands for the value that it is in; write the value out"])
    if depth > _DEEPEST:
        raise SettingsError([f"it is nested more than {_DEEPEST} levels deep"])
    if id(node) not in sizes:
        open_nodes.add(id(node))
        sizes[id(node)] = 1 + sum(_size(child, sizes, open_nodes, depth + 1) for child in _children(node))
        open_nodes.discard(id(node))
    return sizes[id(node)]


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _twice(node: yaml.Node, seen: set[int]) -> list[str]:
    """Return a problem for every key that stands twice in one mapping: the reader would take the last."""
    if id(node) in seen:
        return []
    seen.add(id(node))
    found: list[str] = []
    keys: set[str] = set()
    for key in (pair[0] for pair in node.value) if isinstance(node, yaml.MappingNode) else ():
        text = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
        found += [f"line {key.start_mark.line + 1}: the key {text!r} is given twice"] if text in keys else []
        keys |= {text} if text and text != "<<" else set()
    return found + [problem for child in _children(node) for problem in _twice(child, seen)]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
