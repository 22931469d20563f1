"""
Write `src/redrive/sync/faces.py`: the types of `app.sync` and `app.sync.desk`.

Reads the classes `Redrive` and `Desk` and writes each public method without its `async`. Run it after either changed:
`.venv/bin/python tests/typing/generate.py`. A test compares the file with what this writes.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src/redrive"
FACES = ROOT / "sync/faces.py"
LEFT_OUT = {"sync", "using", "parts", "store", "tracing"}  # the face itself, and what redrive.testing needs
HEAD = '''"""
The types of `app.sync`, for editors and type checkers.

Owns no behaviour: `calls.py` makes the calls. Written by `tests/typing/generate.py` from `Redrive` and `Desk`; change
those, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload
'''


def text() -> str:
    """Return the file as it must be."""
    app, desk = _tree("app.py"), _tree("desk/desk.py")
    faces = [_face(desk, "Desk", "SyncDesk", {}), _face(app, "Redrive", "SyncRedrive", {"settings": "Settings"})]
    code = "\n\n".join(faces)
    imports = sorted({line for tree in (app, desk) for line in _imports(tree, _names(code))})
    guarded = "\n".join(f"    {line}" for line in imports)
    type_variables = 'F = TypeVar("F", bound="Callable[..., Any]")'
    made = f"{HEAD}\nif TYPE_CHECKING:\n{guarded}\n\n{type_variables}\n\n\n{code}\n"
    return _formatted(made)


def _tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def _face(tree: ast.Module, name: str, face: str, attributes: dict[str, str]) -> str:
    source = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    body: list[ast.stmt] = [ast.Expr(ast.Constant(f"`{name}` for code that cannot await."))]
    body += [ast.AnnAssign(ast.Name(key), ast.Name(kind), None, 1) for key, kind in attributes.items()]
    methods = [node for node in source.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    overloaded = {node.name for node in methods if "overload" in _decorators(node)}
    for node in methods:
        if node.name.startswith("_") or node.name in LEFT_OUT:
            continue
        if node.name not in overloaded or "overload" in _decorators(node):
            body.append(_method(node))
    made = ast.ClassDef(name=face, bases=[ast.Name("Protocol")], keywords=[], body=body, decorator_list=[])
    made.type_params = []  # type: ignore[attr-defined]
    return ast.unparse(ast.fix_missing_locations(made))


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.FunctionDef:
    doc = ast.get_docstring(node, clean=False)
    node.args.kw_defaults = [_default(value) for value in node.args.kw_defaults]
    node.args.defaults = [_default(value) or value for value in node.args.defaults]
    returns = ast.Name("SyncDesk") if node.name == "desk" else node.returns
    body: list[ast.stmt] = [ast.Expr(ast.Constant(... if doc is None else doc))]
    made = ast.FunctionDef(name=node.name, args=node.args, body=body, decorator_list=node.decorator_list)
    made.returns, made.type_comment, made.type_params = returns, None, []  # type: ignore[attr-defined]
    return made


def _default(value: ast.expr | None) -> ast.expr | None:
    """Return a default as it is if it is a constant; of others it is enough that there is one."""
    return value if value is None or isinstance(value, ast.Constant) else ast.Constant(...)


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {ast.unparse(one) for one in node.decorator_list}


def _names(code: str) -> set[str]:
    found = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    return found - {"Any", "Protocol", "TypeVar", "overload"} | {"Callable"}


def _imports(tree: ast.Module, used: set[str]) -> list[str]:
    """Return an import for each of the names that are used, however the source imports it."""
    plain = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return [f"import {name}" for name in plain if name in used] + [
        f"from {node.module} import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
        if (alias.asname or alias.name) in used
    ]


def _formatted(code: str) -> str:
    """Return *code* as ruff sorts and formats it."""
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check", "--select", "I,TC004", "--fix", "--quiet"], ["format", "--quiet"]):
        code = subprocess.run(
            [ruff, *command, "--stdin-filename", str(FACES), "-"],
            input=code, capture_output=True, text=True, check=True, cwd=ROOT,
        ).stdout  # fmt: skip
    return code


if __name__ == "__main__":
    FACES.write_text(text(), encoding="utf-8")
