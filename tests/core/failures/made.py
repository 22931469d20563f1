"""Errors of classes whose packages are not installed."""

from __future__ import annotations


def made(name: str, *parents: type[BaseException], **traits: object) -> BaseException:
    """Return an error of a class called *name*, such as `httpx.HTTPStatusError`, without the package."""
    module, _, bare = name.rpartition(".")
    error = type(bare, parents or (Exception,), {"__module__": module})("it failed")
    vars(error).update(traits)
    return error
