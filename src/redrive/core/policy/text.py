"""
How a retry policy is written and read.

Owns the text form, such as `exponential:first=1,cap=300`, which letters, settings and the
command line carry. Knows no formula and no bound: `retry_policy` and `problems` have those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LIMITS = ("max_attempts", "jitter", "total")
KEYS: dict[str, tuple[str, ...]] = {  # of each kind of backoff, in the order in which they are written
    "never": (),
    "immediate": ("max_attempts", "total"),
    "constant": ("delay", *_LIMITS),
    "linear": ("step", "cap", *_LIMITS),
    "exponential": ("first", "cap", "multiplier", *_LIMITS),
    "custom": ("name", "cap", *_LIMITS),
}
_READERS: dict[str, Callable[[str], Any]] = {"max_attempts": int, "jitter": str, "name": str}  # all others are numbers


def write(name: str, settings: Mapping[str, str | float]) -> str:
    """Return the text of a policy."""
    said = [f"{key}={value if isinstance(value, str) else number(value)}" for key, value in settings.items()]
    return f"{name}:{','.join(said)}" if said else str(name)


def read(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings that *text* holds; raise PolicyError with every problem."""
    name, _, rest = text.partition(":")
    name = name.strip()
    if name not in KEYS:
        raise PolicyError(f"cannot read the retry policy {text!r}: {name!r} is none of {', '.join(KEYS)}")
    settings, problems = _settings(rest, KEYS[name])
    if name == "custom" and "name" not in settings:
        problems.append("it needs the name of a registered function")
    if problems:
        keys = ", ".join(KEYS[name]) or "nothing"
        raise PolicyError(f"cannot read the retry policy {text!r}: {'; '.join(problems)}; {name} takes {keys}")
    return name, settings


def number(value: float) -> str:
    """Return *value* as short as it reads back the same."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _settings(rest: str, keys: tuple[str, ...]) -> tuple[dict[str, Any], list[str]]:
    settings: dict[str, Any] = {}
    problems: list[str] = []
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, _, value = (piece.strip() for piece in part.partition("="))
        problem = f"{key!r} is given twice" if key in settings else _read(key, value, keys, settings)
        problems += [problem] if problem else []
    return settings, problems


def _read(key: str, value: str, keys: tuple[str, ...], settings: dict[str, Any]) -> str:
    if key not in keys:
        return f"it knows no {key!r}"
    try:
        settings[key] = _READERS.get(key, float)(value)
    except ValueError:
        return f"{key} is {value!r} and must be a {'whole ' if key == 'max_attempts' else ''}number"
    return ""
