"""
Functions and errors by name.

Owns the way from a function to its address, which another process can import, and back. An address is
`module:function`, or `/path/script.py:function` for a function of the script that was started. Knows nothing
about what the functions do.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redrive.errors import HandlerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

SCRIPT = "__redrive_main__"  # what a started script is called in a child, so that its `__main__` part stays quiet


def name_of(function: Callable[..., Any]) -> str:
    """Return `module:function`, the same on every machine; a started script goes by its file's name."""
    module, _, qualname = address_of(function).rpartition(":")
    return f"{Path(module).stem if module.endswith('.py') else module}:{qualname}"


def address_of(function: Callable[..., Any]) -> str:
    """Return where *function* is defined; `find` finds it there unless `unfindable` gives a reason."""
    module = getattr(function, "__module__", None) or type(function).__module__
    if module == "__main__":
        module = _main() or module
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def unfindable(function: Callable[..., Any]) -> str:
    """Return why another process cannot import *function*, or nothing if it can."""
    qualname = getattr(function, "__qualname__", None)
    if qualname is None or not hasattr(function, "__code__"):
        return "not a plain function"
    if "<lambda>" in qualname:
        return "a lambda"
    if "." in qualname:
        return "defined inside a class or another function"
    if function.__module__ == "__main__" and _main() is None:
        return "typed into an interpreter that has no file"
    return ""


def class_name(kind: type) -> str:
    """Return what *kind* will be called in a process that has imported it."""
    module = kind.__module__
    if module == "__main__":
        main = _main() or module
        module = SCRIPT if main.endswith(".py") else main
    return f"{module}.{kind.__qualname__}"


def find(address: str) -> Any:
    """Import what is defined at *address*; raise HandlerError if nothing is, or what the import itself raises."""
    module_name, _, attribute = address.rpartition(":")
    module = _script(module_name) if module_name.endswith(".py") else importlib.import_module(module_name)
    try:
        return getattr(module, attribute)
    except AttributeError:
        message = f"cannot find {address!r}: module {module.__name__!r} has no {attribute!r}; was it renamed?"
        raise HandlerError(message) from None


def _main() -> str | None:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # started by `python -m`
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return str(Path(file).resolve()) if file and file.endswith(".py") else None


def _script(path: str) -> ModuleType:
    """Load the script once, as multiprocessing does: under another name than `__main__`."""
    if SCRIPT in sys.modules:
        return sys.modules[SCRIPT]
    spec = importlib.util.spec_from_file_location(SCRIPT, path)
    if spec is None or spec.loader is None:
        raise HandlerError(f"cannot import the script {path!r}: it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[SCRIPT] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:  # SystemExit too: the next call must not find half a module
        del sys.modules[SCRIPT]
        raise
    return module
