# ruff: noqa: INP001 - run by path; it stands beside the pages that it writes
"""
Write the generated parts of the reference: `python docs/generate.py`.

Owns what stands between `<!-- generated: NAME -->` and `<!-- end of NAME -->` in the pages; everything
around it is written by hand. A test fails when a part is not what this file writes.
"""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer.main

from redrive import errors
from redrive.app import Redrive
from redrive.cli.root import app as command_line
from redrive.core.breaker import BreakerRules
from redrive.core.budget import BudgetRules
from redrive.core.facts import FACTS
from redrive.core.failures import fingerprint
from redrive.core.policy import RetryPolicy
from redrive.core.query import terms
from redrive.desk.desk import Desk
from redrive.settings import PREFIX, Settings
from redrive.signals.log import LEVELS
from redrive.signals.metrics import FACT_METRICS, SPOOL_METRICS, STORE_METRICS
from redrive.sources.kafka.config import ExecutionConfig, KafkaConfig
from redrive.sources.kafka.config_checks import IN_CODE
from redrive.sources.kafka.facts import KAFKA_FACTS
from redrive.sources.kafka.metrics import KAFKA_METRICS
from redrive.sources.pipeline.admin.signals.metrics import PIPELINE_METRICS
from redrive.sources.webhook.prometheus import INBOX_METRICS
from redrive.stores.sqlite.file.database import migrations

sys.path.insert(0, str(Path(__file__).parent))  # its own parts stand beside it

import field_tables
from json_tables import SHAPES, shapes
from page_tables import first_line, table
from proto_tables import protos
from python_tables import kafka_parts, methods_of, public_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redrive.signals.metrics import Metric

DOCS = Path(__file__).parent
_PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


def render(page: str) -> str:
    """Return the text of *page* with every generated part as it should be."""
    return _PART.sub(lambda found: f"{found[1]}\n{PARTS[found[2]]()}\n\n{found[3]}", page)


# ---------------------------------------------------------------------- settings


def settings() -> str:
    """Return a table of all settings."""
    return table(
        ("setting", "environment", "default", "means", "example"), (_setting(n) for n in Settings.model_fields)
    )


def _setting(name: str) -> tuple[str, ...]:
    field = Settings.model_fields[name]
    example = (field.examples or [""])[0]
    means = f"{(field.description or '').removesuffix('.')}{_bounds(field)}."
    return f"`{name}`", f"`{PREFIX}{name.upper()}`", _shown(field.default), means, f"`{example}`"


def _shown(value: object) -> str:
    return "absent" if value in (None, ()) else f"`{value}`"


def _bounds(field: Any) -> str:
    words = {"ge": "from {}", "gt": "above {}", "le": "up to {}"}
    said = [words[name].format(limit) for each in field.metadata for name in words if (limit := _limit(each, name))]
    choices = getattr(field.annotation, "__args__", ()) if "Literal" in str(field.annotation) else ()
    said += [" or ".join(f"`{choice}`" for choice in choices)] if choices else []
    return f" ({', '.join(said)})" if said else ""


def _limit(constraint: object, name: str) -> str:
    value = getattr(constraint, name, None)
    return "" if value is None else f"{value:g}"


def kafka_keys(room: str, kind: Any) -> Callable[[], str]:
    """Return what makes a table of all keys of one of the Kafka consumer's configurations."""
    means = tomllib.loads((DOCS / "reference/kafka-settings.toml").read_text())[room]

    def rows() -> Iterator[tuple[str, ...]]:
        for each in fields(kind):
            default = "absent" if each.default in (None, (), "", MISSING) else f"`{each.default}`"
            variable = "only in code" if each.name in IN_CODE else f"`{room}_{each.name}`".upper()
            yield f"`{each.name}`", variable, default, means[each.name]

    return lambda: table(("key", "environment", "default", "means"), rows())


# ---------------------------------------------------------------------- the command line


def cli() -> str:
    """Return a section for each command."""
    root = typer.main.get_command(command_line)
    sections = [_options("Global options stand before or after the command:", root.params)]
    sections += [_command(path, command) for path, command in commands()]
    return "\n\n".join(sections)


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command by its full name."""
    yield from _within("redrive", typer.main.get_command(command_line))


def _within(path: str, group: Any) -> Iterator[tuple[str, Any]]:
    for name, command in getattr(group, "commands", {}).items():
        if command.hidden:  # an older name that still works
            continue
        yield f"{path} {name}", command
        yield from _within(f"{path} {name}", command)


def _command(path: str, command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    usage = " ".join((path, *(_argument(param) for param in arguments), "[OPTIONS]"))
    parts = [f"## {path}", f"```\n{usage}\n```", " ".join((command.help or "").split())]
    if arguments:
        parts.append(table(("argument", "means"), ((f"`{_name(each)}`", each.help or "") for each in arguments)))
    parts.append(_options("", command.params))
    return "\n\n".join(part for part in parts if part)


def _argument(param: Any) -> str:
    name = _name(param) + ("…" if param.nargs != 1 or getattr(param, "multiple", False) else "")
    return name if param.required else f"[{name}]"


def _name(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _options(title: str, params: Sequence[Any]) -> str:
    rows = [_option(param) for param in params if param.param_type_name == "option" and param.name != "help"]
    return "\n\n".join(part for part in (title, table(("option", "means", "default"), rows)) if part) if rows else ""


def _option(param: Any) -> tuple[str, ...]:
    names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
    default = "" if param.default in (None, "", False) or callable(param.default) else f"`{param.default}`"
    return names, param.help or "", default


# ---------------------------------------------------------------------- metrics, facts, errors


def metrics(known: Sequence[Metric]) -> Callable[[], str]:
    """Return what makes a table of *known* metrics."""
    rows = [(f"`{m.name}`", m.type, ", ".join(f"`{label}`" for label in m.labels), m.help) for m in known]
    return lambda: table(("metric", "type", "labels", "means"), rows)


def facts() -> str:
    """Return a table of all facts."""
    rows = ((f"`{f.name}`", f"`{f.__name__}`", LEVELS[f], first_line(f), _fields(f)) for f in FACTS)
    return table(("fact", "class", "level", "means", "carries"), rows)


def kafka_facts() -> str:
    """Return a table of what the Kafka consumer says of itself."""
    return table(("fact", "means", "carries"), ((f"`{f.name}`", first_line(f), _fields(f)) for f in KAFKA_FACTS))


def _fields(struct: Any) -> str:
    return ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(struct))


def error_tree() -> str:
    """Return the tree of errors as its module draws it."""
    drawn = inspect.getdoc(errors) or ""
    return "```\n" + drawn[drawn.index("RedriveError\n") : drawn.index("\n\nWhat a handler")] + "\n```"


def error_table() -> str:
    """Return a table of all errors."""
    return table(("error", "means"), ((f"`{kind.__name__}`", first_line(kind)) for kind in error_classes()))


def error_classes() -> list[type[Exception]]:
    """Return every exception that redrive defines for its users, in the order of the module."""
    found = [kind for kind in vars(errors).values() if inspect.isclass(kind) and kind.__module__ == errors.__name__]
    return list(dict.fromkeys(found))  # Reject has two names


# ---------------------------------------------------------------------- queries, fingerprints, schema


def query_fields() -> str:
    """Return a table of the fields that a query may name."""
    rows = ((f"`{name}{_path(field)}`", field.kind, _values(field)) for name, field in terms.FIELDS.items())
    return table(("field", "kind", "values"), rows)


def _path(field: terms.Field) -> str:
    return {"tree": ".PATH", "header": ".NAME"}.get(field.kind, "")


def _values(field: terms.Field) -> str:
    examples = {"number": "`3`, `>2`", "span": "`>1h`, `<=30m`", "prefix": "its beginning is enough"}
    return ", ".join(f"`{word}`" for word in field.words) or examples.get(field.kind, "")


MESSAGES = (
    "order 17 of customer 9 has no address",
    "no such user: 'ana'",
    "cannot reach https://bank.example/pay?id=7",
    "timed out after 30.5 s",
    "4b1d6f0e-8c1f-4a55-9d0b-6f6f6f6f6f6f is locked since 2026-01-01T10:00:00Z",
    "cannot open /var/spool/orders/17.json",
)


def templates() -> str:
    """Return a table of messages and what grouping makes of them."""
    return table(("message", "template"), ((f"`{m}`", f"`{fingerprint.template(m)}`") for m in MESSAGES))


def schema() -> str:
    """Return the SQL that makes the schema."""
    return "\n\n".join(f"```sql\n{script.strip()}\n```" for _, script in migrations())


PARTS: dict[str, Callable[[], str]] = {
    "protos": protos("document", "graph", "module"),
    "services": protos("engine", "admin"),
    "settings": settings,
    "execution-config": kafka_keys("execution", ExecutionConfig),
    "kafka-config": kafka_keys("kafka", KafkaConfig),
    "cli": cli,
    "metrics-of-facts": metrics(FACT_METRICS),
    "metrics-of-stores": metrics(STORE_METRICS),
    "metrics-of-spools": metrics(SPOOL_METRICS),
    "metrics-of-inboxes": metrics(INBOX_METRICS),
    "metrics-of-kafka": metrics(KAFKA_METRICS),
    "metrics-of-pipelines": metrics(PIPELINE_METRICS),
    "facts": facts,
    "kafka-facts": kafka_facts,
    "error-tree": error_tree,
    "errors": error_table,
    "query-fields": query_fields,
    "templates": templates,
    "schema": schema,
    "public-names": public_names,
    "app": methods_of(Redrive),
    "desk": methods_of(Desk),
    "policies": methods_of(RetryPolicy),
    "kafka-parts": kafka_parts,
    "fields": field_tables.structs,
    "record": field_tables.record,
    "reasons": field_tables.reasons,
    "desk-answers": field_tables.desk_answers({name for names in SHAPES.values() for name in names}),
    "handler-options": field_tables.handler_options,
    "draft-options": field_tables.draft_options,
    "queue-options": field_tables.queue_options,
    "breaker-rules": field_tables.rules(BreakerRules),
    "budget-rules": field_tables.rules(BudgetRules),
    "extras": field_tables.extras,
    "shapes": shapes,
}


def main() -> None:
    """Bring every page up to date."""
    for path in sorted(DOCS.rglob("*.md")):
        before = path.read_text()
        if (after := render(before)) != before:
            path.write_text(after)


if __name__ == "__main__":
    main()
