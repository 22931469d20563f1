"""
Secrets: where a setting refers to one, and how a URL is shown without its own.

Owns reading `env:NAME` and `file:PATH`, and masking. Its errors show nothing of a secret. Knows no setting.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from redrive.errors import SettingsError

_LARGEST_SECRET = 65_536  # bytes
_URL = re.compile(r"[a-z][a-z0-9+.-]*://.*", re.DOTALL)
_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):.*@", re.DOTALL)
_SECRET_PARAMETER = re.compile(r"([?&;](?:password|passwd|secret|token|sslpassword)=)[^&]*", re.IGNORECASE)


def masked(url: str) -> str:
    """Return *url* without its password; of what is no URL, nothing before an @ is shown."""
    if "@" in url and not _URL.fullmatch(url):
        return f"***@{url.rpartition('@')[2]}"
    return _SECRET_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


def read_secret(reference: str) -> str:
    """Return what `env:NAME` or `file:PATH` holds; raise SettingsError."""
    scheme, _, place = reference.partition(":")
    if scheme == "env" and place:
        if not os.environ.get(place):
            raise SettingsError([f"cannot read the secret {reference}: the variable is not set, or empty; set {place}"])
        return os.environ[place]
    if scheme != "file" or not place:
        raise SettingsError(["cannot read a secret that is not a reference; write it as env:NAME or file:PATH"])
    try:
        with Path(place).expanduser().open("rb") as file:
            text = file.read(_LARGEST_SECRET).decode("utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SettingsError([f"cannot read the secret {reference}: {why}; check the path and its rights"]) from None
    if not text:
        raise SettingsError([f"cannot read the secret {reference}: the file is empty; write the secret into it"])
    return text
