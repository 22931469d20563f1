"""
Text that SQLite cannot hold.

Owns what becomes of lone surrogates, which stand for bytes that were no text: what people say of
their acts is kept with such characters written out. Knows no column.
"""

from __future__ import annotations


def written_out(text: str) -> str:
    r"""Return *text* as SQLite can hold it: a lone surrogate as `\udcff`; nearly always that is *text* itself."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
