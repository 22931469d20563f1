"""
Where a source's events are sent on to, as a frozen value.

Owns the options of a forward and what is wrong with one. Knows no client and no letter.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from redrive.core.checks.did_you_mean import did_you_mean
from redrive.errors import SettingsError
from redrive.sources.webhook.secrets import WRITTEN, read_reference

if TYPE_CHECKING:
    from collections.abc import Iterator

GONE = 410
_PLAIN_URL = re.compile(r"[!-~]+")  # no space, no line end, nothing that a proxy could read otherwise


@dataclass(frozen=True, kw_only=True, repr=False)
class Forward:
    """
    One destination. *secret* signs what is sent (Standard Webhooks); *headers* sends the original headers along.

    *allow_private* lists the networks, such as "10.0.0.0/8", that a host name may resolve into; an address that is
    written literally, and `localhost`, may be used without. *terminal* are statuses that make an event a dead letter
    at once. *rate* limits the events begun per second.
    """

    url: str
    secret: str | None = None
    headers: bool = False
    allow_private: tuple[str, ...] = ()
    terminal: tuple[int, ...] = (GONE,)
    timeout: float = 10.0  # seconds for the whole answer
    breaker: bool = True
    rate: float | None = None
    concurrency: int = 10

    def __post_init__(self) -> None:
        """Raise SettingsError with every problem."""
        for name in ("allow_private", "terminal"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str | int) else tuple(value))
        problems = [f"its forward: {problem}" for problem in _problems(self)]
        if problems:
            raise SettingsError(problems)

    def __repr__(self) -> str:
        """Return the host alone: an address may hold a token."""
        return f"Forward({urlsplit(self.url).hostname!r})"

    @property
    def destination(self) -> str:
        """Scheme, host and port, to be shown: a path or a query may hold a token."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @classmethod
    def read(cls, given: object) -> Forward | None:
        """Return the forward that a URL, a table or a Forward stands for; raise SettingsError."""
        if given is None or isinstance(given, Forward):
            return given
        if isinstance(given, str):
            return cls(url=given)
        if not isinstance(given, Mapping):
            raise SettingsError([f"its forward is a {type(given).__name__} and must be a URL or a table with one"])
        known = [field.name for field in fields(cls)]
        unknown = [f"its forward: {key} is no option{did_you_mean(key, known)}" for key in given if key not in known]
        if "url" not in given:
            unknown.append("its forward: url is missing")
        if unknown:
            raise SettingsError(unknown)
        options: dict[str, Any] = dict(given)
        return cls(**options)


def _problems(forward: Forward) -> Iterator[str]:
    if not _is_usable(forward.url):
        yield "url must be like https://service.example/hooks, without user name, password or fragment"
    if forward.secret is not None and read_reference(forward.secret) is None:
        yield f"secret is not a reference; {WRITTEN}"
    for network in forward.allow_private:
        if not _is_network(network):
            yield f"allow_private holds {network!r}, which is no network such as 10.0.0.0/8"
    for status in forward.terminal:
        if type(status) is not int or not 300 <= status <= 599:  # noqa: PLR2004 - what HTTP calls no success
            yield f"terminal holds {status!r}, which is no status from 300 to 599"
    for name in ("timeout", "rate", "concurrency"):
        value = getattr(forward, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
            yield f"{name} is {value!r} and must be a number above 0"


def _is_usable(url: object) -> bool:
    if not (isinstance(url, str) and _PLAIN_URL.fullmatch(url)):
        return False
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and not parts.fragment


def _is_network(text: object) -> bool:
    try:
        ipaddress.ip_network(text)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return False
    return True
