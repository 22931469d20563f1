"""
Reading the settings from arguments, the environment and the file.

Owns which source wins, and the sentences that say what is wrong with a value; all problems are reported at once.
Knows no room that uses a setting.
"""

from __future__ import annotations

import logging
import os
import tomllib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pydantic import ValidationError

from redrive.core.checks.did_you_mean import did_you_mean
from redrive.errors import SettingsError
from redrive.settings.secrets import masked
from redrive.settings.values import FILE, PREFIX, Settings
from redrive.sources.kafka.environment import read_configs, unread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

    from redrive.sources.kafka.config import ExecutionConfig, KafkaConfig

_DLQ = "dlq_"  # the settings of the workflow queue
_NOT_SETTINGS = {"config"}  # REDRIVE_CONFIG names the file itself
_CLOSE = 0.85  # how alike an unknown variable must be to be taken for a slip


def load(config: str | Path | None = None, *, prefix: str = "", **arguments: object) -> Settings:
    """
    Return the settings; raise SettingsError with every problem at once.

    *config* is the file to read, `$REDRIVE_CONFIG` or `redrive.toml` if not given; only a file that
    was asked for must exist. *arguments* that are None count as not given.
    Variables that begin with *prefix*, such as `MAHAVISHNU_`, are read below those of `REDRIVE_`; the file may then be
    another program's, and only its keys `dlq_*` are looked at.
    """
    path, problems, found = _read_file(config)
    if prefix:
        found = {key: value for key, value in found.items() if key.startswith(_DLQ)} | _prefixed(prefix)
    given = {name: value for name, value in arguments.items() if value is not None}
    problems += _unknown_keys(given, "argument {}") + _unknown_keys(found, f"{{}} in {path}")
    problems += _unknown_variables(os.environ)
    given = {name: value for name, value in given.items() if name in Settings.model_fields}
    known = {key: value for key, value in found.items() if key in Settings.model_fields}
    try:
        settings = Settings(**given, _file=known)  # type: ignore[arg-type, call-arg]  # taken out again by the sources
    except ValidationError as error:
        problems += [_problem(detail, given, path, prefix) for detail in error.errors()]
    if problems:
        raise SettingsError(list(dict.fromkeys(problems)))
    return settings


def load_kafka(**given: object) -> tuple[ExecutionConfig, KafkaConfig]:
    """
    Return the Kafka consumer's configurations from `EXECUTION_*` and `KAFKA_*`; raise SettingsError with every problem.

    *given* are KafkaConfig's own names and win; those that are None count as not given. Variables that look
    as if they were meant but are not read get a warning in the log.
    """
    for told in unread(os.environ):
        logging.getLogger("redrive.kafka").warning("%s", told)
    kafka = {name: value for name, value in given.items() if value is not None}
    return read_configs(os.environ, kafka=kafka)


# ---------------------------------------------------------------------- the file


def _read_file(config: str | Path | None) -> tuple[Path, list[str], dict[str, Any]]:
    asked = config or os.environ.get(f"{PREFIX}CONFIG")
    path = Path(asked or FILE)
    try:
        with path.open("rb") as file:
            return path, [], _read_yaml(file) if path.suffix in (".yaml", ".yml") else tomllib.load(file)
    except FileNotFoundError:
        problem = f"cannot read settings from {str(path)!r}: there is no such file; leave it out to use the defaults"
        return path, [problem] if asked else [], {}
    except (OSError, UnicodeDecodeError, _NoYaml) as error:
        return path, [f"cannot read settings from {str(path)!r}: {error}"], {}
    except tomllib.TOMLDecodeError as error:
        return path, [f"cannot read settings from {str(path)!r}: it is not valid TOML: {error}"], {}


class _NoYaml(Exception):
    """A file in YAML cannot be read."""


def _read_yaml(file: IO[bytes]) -> dict[str, Any]:
    try:
        import yaml  # noqa: PLC0415 - needs the extra `yaml`
    except ModuleNotFoundError:
        raise _NoYaml("YAML needs an extra; pip install 'redrive[yaml]', or write the file in TOML") from None
    try:
        found = yaml.safe_load(file)
    except yaml.YAMLError as error:
        raise _NoYaml(f"it is not valid YAML: {getattr(error, 'problem', None) or 'unknown problem'}") from None
    if found is not None and not isinstance(found, dict):
        raise _NoYaml("it must be a mapping of settings to values")
    return {str(key): value for key, value in (found or {}).items()}


def _prefixed(prefix: str) -> dict[str, Any]:
    """Return the settings `dlq_*` that variables of another program's *prefix* give."""
    names = {f"{prefix}{name}".upper(): name for name in Settings.model_fields if name.startswith(_DLQ)}
    return {names[each.upper()]: value for each, value in os.environ.items() if each.upper() in names}


def _unknown_keys(found: Mapping[str, object], named: str) -> list[str]:
    known = list(Settings.model_fields)
    return [f"{named.format(key)} is no setting{did_you_mean(key, known)}" for key in found if key not in known]


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the variables that look like slips; others may belong to another program."""
    known = [f"{PREFIX}{name}".upper() for name in (*Settings.model_fields, *_NOT_SETTINGS)]
    unknown = [name for name in environ if name.upper().startswith(PREFIX) and name.upper() not in known]
    slips = [(name, did_you_mean(name.upper(), known, alike=_CLOSE)) for name in unknown]
    return [f"{name} is no setting{suggestion}" for name, suggestion in slips if suggestion]


# ---------------------------------------------------------------------- the sentences

_MUST = {  # by pydantic's name for the problem
    "bool_parsing": "it must be true or false",
    "bool_type": "it must be true or false",
    "int_parsing": "it must be a whole number",
    "int_type": "it must be a whole number",
    "int_from_float": "it must be a whole number",
    "float_parsing": "it must be a number",
    "float_type": "it must be a number",
    "finite_number": "it must be a finite number",
    "greater_than_equal": "it must be {ge:g} or more",
    "greater_than": "it must be more than {gt:g}",
    "less_than_equal": "it must be {le:g} or less",
    "literal_error": "it must be one of {expected}",
    "value_error": "{error}",
    "string_type": "it must be text",
    "tuple_type": "it must be a list of names",
    "dict_type": "it must be a table in redrive.toml",
}


def _problem(detail: ErrorDetails, given: Mapping[str, object], path: Path, prefix: str) -> str:
    field = str(detail["loc"][0]) if detail["loc"] else ""
    example = (Settings.model_fields[field].examples or [""])[0]
    return f"{_name(field, given, path, prefix)} is {_shown(detail['input'])}; {_must(detail)}, such as {example}"


def _name(field: str, given: Mapping[str, object], path: Path, prefix: str) -> str:
    """Return the setting as the user wrote it."""
    if field in given:
        return f"argument {field}"
    variables = [f"{each}{field}".upper() for each in (PREFIX, prefix) if each]
    written = next((name for variable in variables for name in os.environ if name.upper() == variable), None)
    return written or f"{field} in {path}"


def _shown(value: object) -> str:
    return repr(masked(value)) if isinstance(value, str) else repr(value)


def _must(detail: ErrorDetails) -> str:
    template = _MUST.get(detail["type"])
    return detail["msg"].lower() if template is None else template.format(**detail.get("ctx", {}))
