# ruff: noqa: INP001 - it stands beside generate.py, which is run by path
"""
The tables of fields, options and extras.

Owns which structs and options the reference explains, and joins each name in the code with its meaning in
`reference/fields.toml` and `reference/options.toml`. A name without a meaning is an error. Knows no page.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec
from page_tables import first_line, table

from redrive import Draft, FailureCycle, Letter, Redrive
from redrive.core.letter import Try
from redrive.core.plan import Plan
from redrive.core.why import Why
from redrive.desk.act.plan import Preview
from redrive.desk.desk import Desk
from redrive.engine.handler import build_handler
from redrive.engine.options import Options
from redrive.sources.kafka import Record
from redrive.stores.contract import Page, Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_REFERENCE = Path(__file__).parent / "reference"
FIELDS: dict[str, dict[str, str]] = tomllib.loads((_REFERENCE / "fields.toml").read_text(encoding="utf-8"))
OPTIONS: dict[str, dict[str, Any]] = tomllib.loads((_REFERENCE / "options.toml").read_text(encoding="utf-8"))
STRUCTS = (Letter, Try, FailureCycle, Draft, Receipt, Page, Preview, Plan)  # explained on the page about fields
_RECORD_ENDS = "timestamp_type"  # what follows is the consumer's own


def meaning(struct: str, field: str) -> str:
    """Return what *field* of *struct* means; raise LookupError if no file says it."""
    return FIELDS.get(struct, {}).get(field) or _said(FIELDS["common"], field, f"fields.toml, under [{struct}]")


def _said(room: dict[str, Any], name: str, place: str) -> Any:
    if name not in room:
        raise LookupError(f"the reference does not say what {name!r} means: add a line to docs/reference/{place}")
    return room[name]


def structs() -> str:
    """Return a section for each struct that a caller meets in Python."""
    return "\n\n".join(_struct(each) for each in STRUCTS)


def _struct(struct: Any) -> str:
    names = ((field.name, struct.__annotations__[field.name]) for field in msgspec.structs.fields(struct))
    rows = [(f"`{name}`", f"`{kind}`", meaning(struct.__name__, name)) for name, kind in names]
    parts = [f"### {struct.__name__}", first_line(struct), table(("field", "type", "means"), rows)]
    return "\n\n".join(parts + _properties(struct))


def _properties(struct: Any) -> list[str]:
    found = [(name, thing) for name, thing in vars(struct).items() if isinstance(thing, property)]
    rows = [(f"`{name}`", f"`{thing.fget.__annotations__['return']}`", first_line(thing)) for name, thing in found]
    return [table(("property", "type", "means"), rows)] if rows else []


def record_names() -> list[str]:
    """Return what a worker may read of a record: the places of its partition, then its own fields."""
    own = list(Record.__struct_fields__)
    fields = own[own.index("offset") : own.index(_RECORD_ENDS) + 1]
    properties = [name for name, thing in vars(Record).items() if isinstance(thing, property)]
    return [*properties, *fields]


def record() -> str:
    """Return a table of what a worker of the Kafka consumer gets."""
    rows = [(f"`{name}`", f"`{_record_type(name)}`", meaning("Record", name)) for name in record_names()]
    return table(("name", "type", "means"), rows)


def _record_type(name: str) -> str:
    if name == "headers":
        return "tuple[tuple[str, bytes | None], ...]"
    found = vars(Record)[name]
    return str(found.fget.__annotations__["return"] if isinstance(found, property) else Record.__annotations__[name])


def reasons() -> str:
    """Return a table of the reasons that a letter's `why` may state."""
    rows = ((f"`{why.value.replace('{}', 'NAME')}`", meaning("Why", why.name.lower())) for why in Why)
    return table(("why", "means"), rows)


def rules(struct: Any) -> Callable[[], str]:
    """Return what makes a table of the fields of *struct* with their defaults and meanings."""

    def listing() -> str:
        found = msgspec.structs.fields(struct)
        rows = ((f"`{f.name}`", f"`{f.default}`", meaning(struct.__name__, f.name)) for f in found)
        return table(("name", "default", "means"), rows)

    return listing


# ---------------------------------------------------------------------- what the desk answers


def desk_answers(shapes: set[str]) -> Callable[[], str]:
    """Return what makes a table of the desk's methods and answers; *shapes* are explained on the JSON page."""
    places = {name: f"json.md#{name.lower()}" for name in shapes}
    places |= {struct.__name__: f"fields.md#{struct.__name__.lower()}" for struct in STRUCTS}

    def listing() -> str:
        rows = ((f"`{name}`", _linked(answer, places)) for name, answer in answers())
        return table(("method", "returns"), rows)

    return listing


def answers() -> Iterator[tuple[str, str]]:
    """Yield each public method of the desk with the type of its answer, as text."""
    for name, method in vars(Desk).items():
        if name[0] != "_" and inspect.isfunction(method):
            yield name, str(inspect.unwrap(method).__annotations__["return"])


def _linked(answer: str, places: dict[str, str]) -> str:
    return re.sub(r"\b[A-Z]\w+", lambda found: _link(found[0], places), answer).replace("None", "nothing")


def _link(name: str, places: dict[str, str]) -> str:
    if name == "None":
        return name
    if name not in places:
        raise LookupError(f"the reference does not explain {name}, which the desk returns: add it to SHAPES or STRUCTS")
    return f"[{name}]({places[name]})"


# ---------------------------------------------------------------------- options


def handler_options() -> str:
    """Return a table of what a handler may say of itself."""
    return _options("handler", list(Options.__annotations__), _handler_default)


def _handler_default(name: str) -> str:
    said = _option("handler", name).get("default")
    if said is not None:
        return str(said)
    value = getattr(build_handler("kind", _sample), name)
    return "none" if value is None else f"`{getattr(value, 'text', value)}`"


def _sample(payload: dict[str, Any]) -> None:
    """Stand for a handler that names no option."""


def draft_names() -> list[str]:
    """Return the options of `enqueue`, whether its signature names them or a TypedDict does."""
    parameters = inspect.signature(Redrive.draft).parameters.values()
    named = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    if named:
        return named
    from redrive import drafts  # noqa: PLC0415 - only where the options are there

    return list(get_type_hints(drafts.DraftOptions))


def draft_options() -> str:
    """Return a table of the options of `enqueue`."""
    return _options("enqueue", draft_names(), lambda name: str(_option("enqueue", name)["default"]))


def queue_names() -> list[str]:
    """Return what `app.queue` takes."""
    parameters = inspect.signature(Redrive.queue).parameters.values()
    return [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]


def queue_options() -> str:
    """Return a table of what a queue may be declared to be."""
    return _options("queue", queue_names(), lambda name: str(_option("queue", name)["default"]))


def _options(room: str, names: list[str], default: Callable[[str], str]) -> str:
    rows = ((name, default(name), _option(room, name)) for name in names)
    cells = ((f"`{name}`", said, option["means"], f"`{option['example']}`") for name, said, option in rows)
    return table(("option", "default", "means", "example"), cells)


def _option(room: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = _said(OPTIONS[room], name, f"options.toml, [{room}.{name}]")
    return found


# ---------------------------------------------------------------------- extras


def extras() -> str:
    """Return a table of the extras: what each brings, and what for."""
    rows = (
        (name, _brought(needs), _said(OPTIONS["extras"], name, "options.toml, under [extras]"))
        for name, needs in declared_extras().items()
    )
    return table(("extra", "brings", "for"), ((f"`{name}`", brings, what_for) for name, brings, what_for in rows))


def declared_extras() -> dict[str, list[str]]:
    """Return the extras of the package."""
    project = Path(__file__).parents[1] / "pyproject.toml"
    found: dict[str, list[str]] = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    return found


def _brought(needs: list[str]) -> str:
    if all(need.startswith("redrive[") for need in needs):
        return "all of the above"
    return ", ".join(f"`{need.partition(';')[0].strip()}`" for need in needs)
