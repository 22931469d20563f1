"""`redrive worker`: run an application's handlers, in this process or in several."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import AsJson
from redrive.cli.output import emit, say
from redrive.cli.run import django_project
from redrive.cli.session import Globals, settings_of
from redrive.core.facts import WorkerStopped
from redrive.errors import HandlerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.app import Redrive
    from redrive.cli.run.leaving import Leaving
    from redrive.settings import Settings


def worker(
    ctx: typer.Context,
    app: Annotated[str | None, typer.Argument(metavar="APP", help="The application, such as shop:app.")] = None,
    until_idle: Annotated[
        bool,
        typer.Option(
            "--until-idle",
            help="End once nothing is left to do; until then it waits for retries and for letters due later.",
        ),
    ] = False,
    processes: Annotated[int | None, typer.Option(min=1, help="Run this many processes and restart dead ones.")] = None,
    queue: Annotated[
        list[str] | None, typer.Option(help="Take letters of this queue only; may be given several times.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run an application's handlers until stopped. SIGTERM drains; a second one stops at once."""
    settings = settings_of(ctx)
    name = app or settings.app
    if name is None:
        raise typer.BadParameter("which application? give it as module:attribute, or set REDRIVE_APP")
    _hand_down(ctx)
    loaded = load(name)
    set_up_log(settings)
    count = processes or settings.processes
    if count > 1:
        code = _supervised(name, count, until_idle=until_idle, queues=queue or [])
        raise typer.Exit(code)
    left: list[str] = []
    loaded.listen(lambda fact: left.extend(fact.left) if isinstance(fact, WorkerStopped) else None)
    idle = _run(loaded, until_idle=until_idle, queues=tuple(queue or settings.queues))
    gc.freeze()  # all is settled and closed: collecting what is left would be most of the time that ending takes
    if as_json:
        return emit({"app": name, "ended": "idle" if idle else "stopped", "left": left})
    say(_ending(idle=idle, is_left=bool(left)))
    for each in left:
        say(f"  {each}")
    return None


def _ending(*, idle: bool, is_left: bool) -> str:
    if not idle:
        return "stopped"
    return "idle: nothing is left that this worker can do; pending are:" if is_left else "idle: nothing is left to do"


def load(name: str) -> Redrive:
    """Return the application that *name* (module:attribute) stands for; raise HandlerError."""
    app = _checked(name, find(name))
    django_project.refresh_connections(app)
    return app


def find(name: str) -> object:
    """Return what *name* (module:attribute) stands for; raise HandlerError."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise HandlerError(f"cannot load {name!r}: write it as module:attribute, such as shop:app")
    if os.getcwd() not in sys.path:  # noqa: PTH109 - compared with text
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    django_project.set_up()
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and not module_name.startswith(error.name):
            raise  # the application's own import is broken; its traceback says where
        raise HandlerError(f"cannot load {name!r}: there is no module {module_name!r} here or on sys.path") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise HandlerError(f"cannot load {name!r}: module {module_name!r} has no {attribute!r}")
        found = getattr(found, part)
    return found


def _checked(name: str, found: object) -> Redrive:
    from redrive.app import Redrive

    if not isinstance(found, Redrive):
        raise HandlerError(f"cannot run {name!r}: it is a {type(found).__name__}, not a Redrive application")
    return found


def set_up_log(settings: Settings) -> None:
    """Write the log of this process to standard error."""
    import structlog

    from redrive.signals.log import configure

    if not structlog.is_configured():  # an application that set up its own log keeps it
        configure(settings.log_level, settings.log_format)


def _hand_down(ctx: typer.Context) -> None:
    """Let applications that name no store, and supervised processes, see the global options."""
    chosen = ctx.find_object(Globals) or Globals()
    for variable, value in (("REDRIVE_URL", chosen.url), ("REDRIVE_CONFIG", chosen.config)):
        if value is not None:
            os.environ[variable] = value


def _run(loaded: Redrive, *, until_idle: bool, queues: tuple[str, ...]) -> bool:
    import asyncio

    from redrive.cli.run.leaving import leaving
    from redrive.cli.run.supervisor import hold_lifeline, slot

    hold_lifeline()
    with leaving() as last:
        return asyncio.run(_work(loaded, slot(), last, until_idle=until_idle, queues=queues))


async def _work(loaded: Redrive, slot: int, last: Leaving, *, until_idle: bool, queues: tuple[str, ...]) -> bool:
    try:
        await loaded.open()  # before the metrics page can ask the store
        with _metrics(loaded, slot):
            return await loaded.run(until_idle=until_idle, queues=queues, watchdog=True)
    except BaseException:
        last.code = 1
        raise
    finally:
        await loaded.close()
        last.begin()


@contextmanager
def _metrics(loaded: Redrive, slot: int) -> Iterator[None]:
    """Serve metrics while the worker runs, if a port is set; process number N of several uses that port plus N."""
    if loaded.settings.metrics_port is None:
        yield
        return
    from redrive.signals.prometheus import serve

    page = serve(loaded, loaded.settings.metrics_host, loaded.settings.metrics_port + slot)
    try:
        yield
    finally:
        page.close()


def _supervised(name: str, count: int, *, until_idle: bool, queues: list[str]) -> int:
    from redrive.cli.run.supervisor import supervise

    flags = ["--until-idle"] * until_idle + [f"--queue={queue}" for queue in queues]
    command = [sys.executable, "-m", "redrive.cli", "worker", name, "--processes=1", *flags]
    return supervise(command, count, until_idle=until_idle)
