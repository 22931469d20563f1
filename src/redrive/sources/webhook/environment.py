"""
The inbox's configuration as environment variables and `[inbox]` say it.

Owns the names of the variables (`MAX_ATTEMPTS`, `RETRY_BASE_DELAY`, …), how their texts read, and the sentences that
refuse one; the environment wins over the file. Gets the variables handed in. Knows no source and no secret.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, Any

from redrive.core.checks.did_you_mean import did_you_mean
from redrive.errors import SettingsError
from redrive.sources.webhook.config import InboxConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VARIABLES = {
    "MAX_ATTEMPTS": "max_attempts",
    "RETRY_BASE_DELAY": "retry_base_delay",
    "RETRY_MAX_DELAY": "retry_max_delay",
    "QUEUE_MAXSIZE": "queue_maxsize",
    "RETENTION_DAYS": "retention_days",
}
_LONGEST_DAYS = 3_650.0
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m)?")
_SECONDS = {None: 1.0, "s": 1.0, "m": 60.0}


def read_inbox(variables: Mapping[str, str], table: Mapping[str, Any]) -> InboxConfig:
    """Return the configuration; raise SettingsError with every problem at once."""
    given = {name: (f"{name} in [inbox]", value) for name, value in table.items() if name != "sources"}
    given |= {name: (variable, variables[variable]) for variable, name in VARIABLES.items() if variable in variables}
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, (written, value) in given.items():
        read, must = _READERS.get(name, (None, ""))
        if read is None:
            problems.append(f"{written} is no setting of the inbox{did_you_mean(name, list(_READERS))}")
        elif (found := read(value)) is _WRONG:
            problems.append(f"{written} is {_shown(value)}; it must be {must}")
        else:
            values[name] = found
    if problems:
        raise SettingsError(problems)
    return InboxConfig(**values)


class _Wrong:
    """What a reader answers to a value that is none of its own."""


_WRONG = _Wrong()


def _count(value: object) -> int | _Wrong:
    if isinstance(value, str):
        value = int(value) if re.fullmatch(r"\s*[0-9]{1,9}\s*", value) else value
    return value if type(value) is int and 1 <= value < 1_000_000_000 else _WRONG  # noqa: PLR2004 - ten digits are a slip


def _span(value: object) -> float | _Wrong:
    """Read 5, 5.0, 5s and 5m as seconds."""
    if isinstance(value, str):
        found = _SPAN.fullmatch(value.strip())
        value = float(found[1]) * _SECONDS[found[2]] if found else value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= _LONGEST_DAYS * 86_400 else _WRONG  # type: ignore[arg-type, operator]


def _days(value: object) -> float | _Wrong | None:
    if isinstance(value, str):
        text = value.strip().lower()
        if text == "none":
            return None
        value = float(text) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else value
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return float(value) if is_number and 0 <= value <= _LONGEST_DAYS else _WRONG  # type: ignore[arg-type, operator]


def _shown(value: object) -> str:
    return repr(value)[:60]


_A_COUNT = "a whole number from 1 up, such as {}"
_A_SPAN = "a number of seconds such as 5, 5.0 or 5s, or of minutes such as 5m"
_DAYS = "a number of days such as 30, or none to keep them"
_READERS: dict[str, tuple[Callable[[object], Any], str]] = {
    "max_attempts": (_count, _A_COUNT.format(5)),
    "retry_base_delay": (_span, _A_SPAN),
    "retry_max_delay": (_span, _A_SPAN),
    "queue_maxsize": (_count, _A_COUNT.format(10_000)),
    "retention_days": (_days, _DAYS),
    "retention_failed_days": (_days, _DAYS),
    "max_body": (_count, _A_COUNT.format(1_048_576)),
    "max_headers": (_count, _A_COUNT.format(32_768)),
    "max_header_count": (_count, _A_COUNT.format(100)),
    "receive_seconds": (_span, _A_SPAN),
    "max_receiving": (_count, _A_COUNT.format(268_435_456)),
    "retry_after": (_count, _A_COUNT.format(5)),
}
