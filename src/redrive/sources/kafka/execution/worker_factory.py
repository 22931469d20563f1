"""
Workers that are made where they run.

Owns a worker described by the address of its maker and plain arguments, so that a configured worker, such as a
callable object, reaches worker processes without being pickled: each process imports the maker and calls it once.
Knows no engine and no Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from redrive.engine.import_names import address_of, find, name_of, unfindable
from redrive.errors import HandlerError

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 16 * 1024  # bytes of arguments; each record carries them to its worker process


class WorkerFactory:
    """
    A worker that *maker* makes from *arguments*: once in this process, or once in each worker process.

    *maker* is a function or a class at the top level of a module, or its address such as
    `"shop.workers:Shipper"`; it returns the worker. Arguments are JSON values. Raises HandlerError.
    """

    __slots__ = ("_arguments", "address")

    def __init__(self, maker: str | Callable[..., Any], **arguments: Any) -> None:
        self.address = maker if isinstance(maker, str) else _address(maker)
        if not all(self.address.partition(":")):
            raise HandlerError(f"cannot make a worker with {self.address!r}: write it as module:function")
        self._arguments = _written(self.address, arguments)

    @classmethod
    def read(cls, text: str) -> WorkerFactory:
        """Return the factory that `text` describes."""
        address, arguments = msgspec.json.decode(text, type=tuple[str, dict[str, Any]])
        return cls(address, **arguments)

    @property
    def text(self) -> str:
        """The factory as text for another process."""
        return msgspec.json.encode((self.address, msgspec.Raw(self._arguments))).decode()

    def make(self) -> Callable[[Any], Any]:
        """Return a new worker; raise HandlerError if it cannot be called, or what the maker raises."""
        made = find(self.address)(**msgspec.json.decode(self._arguments))
        if not callable(made):
            raise HandlerError(
                f"{self.address!r} made a {type(made).__name__}, which is not callable; return a callable"
            )
        return made  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        """Return its address; arguments may be secrets."""
        return f"WorkerFactory({self.address!r})"


def made(worker: Callable[[Any], Any] | WorkerFactory) -> Callable[[Any], Any]:
    """Return *worker* as a callable in this process."""
    return worker.make() if isinstance(worker, WorkerFactory) else worker


def called(worker: Callable[[Any], Any] | WorkerFactory) -> str:
    """Return the name of *worker*, or of its maker."""
    return worker.address if isinstance(worker, WorkerFactory) else name_of(worker)


def unreachable(worker: Callable[[Any], Any] | WorkerFactory) -> str:
    """Return why another process cannot import *worker*, or nothing; raise HandlerError if no process can."""
    if not isinstance(worker, WorkerFactory):
        return unfindable(worker)
    find(worker.address)
    return ""


def _address(maker: Callable[..., Any]) -> str:
    why = "" if isinstance(maker, type) and "." not in maker.__qualname__ else unfindable(maker)
    if why:
        raise HandlerError(f"cannot make workers with {maker!r}: it is {why}; define it at the top level of a module")
    return address_of(maker)


def _written(address: str, arguments: dict[str, Any]) -> bytes:
    try:
        written = msgspec.json.encode(arguments)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        message = f"cannot pass the arguments of {address!r} to a worker process: {type(error).__name__}"
        raise HandlerError(f"{message}; give texts, numbers, true, false, null, lists and objects") from None
    if len(written) > _MOST:
        raise HandlerError(f"the arguments of {address!r} take {len(written)} bytes and may take {_MOST}; "
                           "pass the name of a file that holds them")  # fmt: skip
    return written
