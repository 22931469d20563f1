"""
How a child process builds a handler.

Owns the recipe that the parent writes for a handler, and the handler that a child builds from it: functions go by
their address, errors by their name. Knows no letter and no pipe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from redrive.core.classify import Rules, classify
from redrive.core.decide import Failed
from redrive.core.policy import DEFAULT_RETRY_POLICY
from redrive.engine.handler import build_handler
from redrive.engine.import_names import address_of, class_name, find
from redrive.errors import HandlerError

if TYPE_CHECKING:
    from redrive.core.policy import ErrorNames
    from redrive.engine.handler import Handler


class Recipe(msgspec.Struct, frozen=True, array_like=True):
    """How a child builds a handler: every function by its address, every error by its name."""

    kind: str
    address: str
    succeeded: str | None
    terminal_errors: tuple[str, ...]
    retryable_errors: tuple[str, ...]
    rules: Rules


_decode = msgspec.msgpack.Decoder(Recipe).decode


def written_for(handler: Handler) -> bytes:
    """Return the recipe of *handler* as bytes: a child decodes each recipe only once."""
    recipe = Recipe(
        kind=handler.kind,
        address=address_of(handler.function),
        succeeded=None if handler.succeeded is None else address_of(handler.succeeded),
        terminal_errors=_names(handler.policy.terminal_errors),
        retryable_errors=_names(handler.policy.retryable_errors),
        rules=handler.rules,
    )
    return msgspec.msgpack.encode(recipe)


def _names(errors: ErrorNames) -> tuple[str, ...]:
    return tuple(each if isinstance(each, str) else class_name(each) for each in errors)


def built_from(written: bytes) -> Handler | Failed:
    """Return the handler of a recipe, in a child; a failure, if its module cannot be imported."""
    recipe = _decode(written)
    try:
        return build_handler(
            recipe.kind,
            find(recipe.address),
            engine="process",
            succeeded=None if recipe.succeeded is None else find(recipe.succeeded),
            terminal_errors=recipe.terminal_errors,
            retryable_errors=recipe.retryable_errors,
            rules=recipe.rules,
        )
    except BaseException as error:  # noqa: BLE001 - importing a user's module runs user code
        trouble = HandlerError(
            f"a worker process cannot import the handler {recipe.address!r}; "
            "its module must import there by itself, as it does in `python -c 'import …'`"
        )
        trouble.__cause__ = error
        return Failed(classify(trouble, DEFAULT_RETRY_POLICY, recipe.rules))
