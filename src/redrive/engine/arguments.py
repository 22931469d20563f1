"""
What a handler is called with.

Owns the way from a letter to a handler's arguments. It reads the signature once; each letter then costs one
decoder and one call. Knows nothing about how handlers run.
"""

from __future__ import annotations

import contextlib
import inspect
import types
import typing
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from redrive.core.checks.refusals import of_msgspec, of_pydantic
from redrive.core.classify import Undecodable
from redrive.core.letter import JSON, Letter
from redrive.core.letter.media import is_json, media_of
from redrive.errors import HandlerError

Call = Callable[[Letter], Any]
_PLAIN = (Any, object, inspect.Parameter.empty)
_STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)
_read_any = msgspec.json.Decoder().decode


def bind(function: Callable[..., Any]) -> tuple[Call, bool]:
    """
    Return a function that takes a letter and calls *function* as its signature asks, and whether it asks for a Letter.

    A parameter annotated `Letter` gets the letter, the first other one the payload.
    Raise HandlerError if the signature fits neither.
    """
    signature = _signature(function)
    named = [parameter for parameter in signature.parameters.values() if parameter.kind not in _STARS]
    kinds = {parameter.name: _annotation(function, parameter) for parameter in named}
    letters = [name for name, kind in kinds.items() if kind is Letter]
    payload = next((name for name in kinds if name not in letters), None)
    if len(letters) > 1 or not kinds:
        raise HandlerError("it must take the payload, or one parameter annotated Letter, or both")
    decode = decoder(kinds[payload]) if payload else None
    roles = {name: "letter" if name in letters else "payload" for name in (*letters, payload) if name}
    call = _call(function, _by_place(named, roles), roles, decode)
    _check(signature, _by_place(named, roles), roles)
    return call, bool(letters)


def decoder(kind: Any) -> Call:
    """Return a function that turns a letter's payload into a *kind*, or raises Undecodable."""
    if kind is bytes:
        return lambda letter: letter.payload
    if kind in _PLAIN:
        return _decode_plain
    if kind is str:
        return _decode_text
    return _structured(_reader(kind), kind)


# ---------------------------------------------------------------------- the signature


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if inspect.isclass(function) or not callable(function):
        raise HandlerError(f"it is {function!r}, and a handler must be a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise HandlerError("it has a `yield`, and a handler must return once its letter is handled")
    try:
        return inspect.signature(function)
    except ValueError as error:  # some functions written in C
        raise HandlerError(f"its signature cannot be read ({error}); wrap it in a function of your own") from None


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    plain = inspect.unwrap(getattr(function, "func", function))
    names = getattr(plain, "__globals__", {})
    holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return typing.get_type_hints(holder, globalns=names, include_extras=True)[parameter.name]
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        message = (
            f"the annotation {parameter.annotation!r} of {parameter.name!r} cannot be read ({error}); "
            "import or define what it names at the top of the module, not under TYPE_CHECKING or in a function"
        )
        raise HandlerError(message) from None


def _by_place(named: list[inspect.Parameter], roles: dict[str, str]) -> tuple[str, ...]:
    """Return the roles, in order, if the leading parameters are exactly the ones that we fill; else nothing."""
    leading = named[: len(roles)]
    fits = all(p.name in roles and p.kind is not inspect.Parameter.KEYWORD_ONLY for p in leading)
    return tuple(roles[p.name] for p in leading) if fits else ()


def _check(signature: inspect.Signature, places: tuple[str, ...], roles: dict[str, str]) -> None:
    try:
        signature.bind(*places) if places else signature.bind(**roles)
    except TypeError as error:
        rest = next((p for p in signature.parameters.values() if _is_open(p) and p.name not in roles), None)
        if rest is not None and "letter" not in roles.values():
            raise HandlerError(f"{error}; if it is to get the letter, annotate it: {rest.name}: Letter") from None
        message = f"{error}; it is called with {' and '.join(roles.values())} only, so give the rest defaults"
        raise HandlerError(message) from None


def _is_open(parameter: inspect.Parameter) -> bool:
    """Whether *parameter* is required and has no annotation."""
    return parameter.annotation is parameter.empty is parameter.default and parameter.kind not in _STARS


def _call(function: Callable[..., Any], places: tuple[str, ...], roles: dict[str, str], decode: Call | None) -> Call:
    if decode is None:
        decode = _nothing
    match places:
        case ("letter",):
            return function
        case ("payload",):
            return lambda letter: function(decode(letter))
        case ("payload", "letter"):
            return lambda letter: function(decode(letter), letter)
        case ("letter", "payload"):
            return lambda letter: function(letter, decode(letter))
    return lambda letter: function(
        **{name: letter if role == "letter" else decode(letter) for name, role in roles.items()}
    )


def _nothing(_letter: Letter) -> None:
    return None


# ---------------------------------------------------------------------- the payload


def _reader(kind: Any) -> Callable[[bytes], Any]:
    validate = getattr(kind, "model_validate_json", None)
    if validate is not None:  # a pydantic model, known by its method so that pydantic is not imported here
        return typing.cast("Callable[[bytes], Any]", validate)
    try:
        known = not isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
        read: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode
    except TypeError as error:
        raise HandlerError(f"payloads cannot be decoded into {kind!r}: {error}") from None
    if not known:
        message = (
            f"payloads cannot be decoded into {kind!r}; annotate the parameter with dict, list, str, bytes, "
            "a dataclass, a msgspec Struct, a pydantic model or Letter"
        )
        raise HandlerError(message)
    return read


def _structured(read: Callable[[bytes], Any], kind: Any) -> Call:
    what = getattr(kind, "__name__", str(kind))

    def decode(letter: Letter) -> Any:
        try:
            return read(letter.payload)
        except _UNREADABLE as error:
            raise _undecodable(letter, what, error, kind) from None

    return decode


def _decode_plain(letter: Letter) -> Any:
    """Give JSON as its value, text as str, and everything else as it is."""
    if letter.content_type == JSON or is_json(letter.content_type):
        try:
            return _read_any(letter.payload)
        except _UNREADABLE as error:
            raise _undecodable(letter, "JSON", error) from None
    return _decode_text(letter) if media_of(letter.content_type).startswith("text/") else letter.payload


def _decode_text(letter: Letter) -> str:
    """Give JSON as the string that it must be, and everything else as UTF-8."""
    try:
        if letter.content_type == JSON or is_json(letter.content_type):
            return _read_text(letter.payload)
        return letter.payload.decode()
    except _UNREADABLE as error:
        raise _undecodable(letter, "str", error) from None


_read_text = msgspec.json.Decoder(str).decode


def _undecodable(letter: Letter, what: str, error: Exception, kind: Any = None) -> Undecodable:
    return Undecodable(f"the payload ({letter.content_type}) does not decode as {what}: {_reason(error, kind)}")


def _reason(error: Exception, kind: Any) -> str:
    """Return the reason, without a piece of the payload."""
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeDecodeError():
            return f"byte {error.start} is not UTF-8"
        case msgspec.DecodeError():
            return of_msgspec(error)
    details = getattr(error, "errors", None)
    return of_pydantic(details, _names_of(kind)) if callable(details) else type(error).__name__


@lru_cache(maxsize=128)
def _names_of(model: Any) -> frozenset[str]:
    """Return the names of all fields that a pydantic *model* knows; other words in a path come from the payload."""
    found = set(getattr(model, "model_fields", ()))
    with contextlib.suppress(Exception):  # a type that has no JSON schema: the names of its own fields are enough
        waiting: list[Any] = [model.model_json_schema(by_alias=by_alias) for by_alias in (True, False)]
        while waiting:
            part = waiting.pop()
            found.update(part.get("properties", ()) if isinstance(part, dict) else ())
            waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return frozenset(found)
