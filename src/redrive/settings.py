"""
Settings: `redrive.toml` and `REDRIVE_*`, read once.

Owns every setting's name, default and bounds, and the sentences that say what is wrong with a
value; all problems are reported at once. Arguments win over the environment, the environment wins
over the file. No other file reads the environment, and rooms get values, never this object's source.
"""

from __future__ import annotations

import logging
import os
import re
import tomllib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, NoDecode, SettingsConfigDict

from redrive.core.budget import OFF, BudgetRules
from redrive.core.checks.did_you_mean import did_you_mean
from redrive.errors import PolicyError, SettingsError
from redrive.sources.kafka.environment import read_configs, unread
from redrive.sources.webhook.environment import read_inbox
from redrive.stores.contract import Retention

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails
    from pydantic_settings import PydanticBaseSettingsSource

    from redrive.sources.kafka.config import ExecutionConfig, KafkaConfig
    from redrive.sources.webhook.config import InboxConfig

FILE = "redrive.toml"
PREFIX = "REDRIVE_"
_DLQ = "dlq_"  # the settings of the workflow queue
_DAY = 86_400.0
_LARGEST_SECRET = 65_536  # bytes
_NOT_SETTINGS = {"config"}  # REDRIVE_CONFIG names the file itself
_CLOSE = 0.85  # how alike an unknown variable must be to be taken for a slip
_URL = re.compile(r"[a-z][a-z0-9+.-]*://.*", re.DOTALL)
_APP = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):.*@", re.DOTALL)
_SECRET_PARAMETER = re.compile(r"([?&;](?:password|passwd|secret|token|sslpassword)=)[^&]*", re.IGNORECASE)


def _names(value: object) -> object:
    """Read `a, b` as two names."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)]


class Settings(BaseSettings):
    """Every setting, with its default; `load` reads them."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", allow_inf_nan=False)

    url: str = Field(
        "sqlite:///redrive.db", description="Where the letters are kept.", examples=["sqlite:///redrive.db"]
    )
    spool: str | None = Field(
        None,
        description="A local file that accepts letters while the store is away.",
        examples=["/var/lib/shop/spool.db"],
    )
    spool_limit: int = Field(100_000, ge=1, description="The most letters that wait in the spool.", examples=[100_000])
    app: str | None = Field(None, description="The application that `redrive worker` runs.", examples=["shop:app"])
    queues: Names = Field(
        (), description="Work on these queues only; all of the app's if empty.", examples=["mail,default"]
    )
    concurrency: int = Field(10, ge=1, description="Letters that one process runs at once.", examples=[10])
    processes: int = Field(1, ge=1, description="Worker processes that `redrive worker` supervises.", examples=[4])
    prefetch: int = Field(
        1_000, ge=0, description="The most letters claimed ahead; fewer unless they are done quickly.", examples=[64]
    )
    generation: int | None = Field(
        None, description="Work only on letters of this generation, and on letters without one.", examples=[7]
    )
    lease_seconds: float = Field(
        60, gt=0, le=86_400, description="How long a claim lasts without a heartbeat.", examples=[60]
    )
    sweep_seconds: float = Field(5, gt=0, description="How often lost claims are looked for.", examples=[5])
    poll_seconds: float = Field(
        1, gt=0, description="The longest rest between two looks for due letters.", examples=[1]
    )
    drain_seconds: float = Field(
        30, ge=0, description="How long a stopping worker waits for its letters.", examples=[30]
    )
    watchdog_seconds: float | None = Field(
        30, gt=0, description="A worker whose event loop is blocked for so long is ended.", examples=[30]
    )
    retention_delivered_days: float | None = Field(
        7, ge=0, description="How long delivered letters are kept; absent keeps them for ever.", examples=[7]
    )
    retention_archived_days: float | None = Field(
        30, ge=0, description="How long archived letters are kept; absent keeps them for ever.", examples=[30]
    )
    retention_failed_days: float | None = Field(
        None, gt=0, description="How long dead letters are kept; for ever unless this is set.", examples=[365]
    )
    retention_handled_days: float | None = Field(
        30,
        ge=0,
        description="How long handled keys are kept after their letters are gone; absent keeps them for ever.",
        examples=[30],
    )
    retry_budget: str | None = Field(
        None,
        description="A retry budget for every queue that names none itself: `on`, or its ratio, floor and burst.",
        examples=["ratio=0.2,floor=10,burst=100"],
    )
    release: str | None = Field(
        None, description="The version of the code, kept with each failure.", examples=["1.4.2"]
    )
    by: str | None = Field(None, description="Who acts, for the audit log; user@host if absent.", examples=["ana@ops"])
    log_format: Literal["console", "json"] = Field("console", description="How log lines look.", examples=["json"])
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least important log lines shown.", examples=["info"]
    )
    metrics_port: int | None = Field(
        None, ge=1, le=65_535, description="Serve Prometheus metrics here; absent serves none.", examples=[9464]
    )
    metrics_host: str = Field(
        "127.0.0.1", description="The address that metrics are served on.", examples=["127.0.0.1"]
    )
    sentry_dsn: str | None = Field(
        None,
        description="Report dead letters to this Sentry project; `sdk`: to that of the app's own `sentry_sdk.init()`.",
        examples=["https://key@sentry.example/1"],
    )

    dlq_enabled: bool = Field(
        default=True, description="Keep failed workflows in the workflow queue.", examples=["true"]
    )
    dlq_max_size: int = Field(
        10_000, ge=100, le=100_000, description="The most failed workflows that are kept open.", examples=[10_000]
    )
    dlq_default_retry_policy: Literal["never", "linear", "exponential", "immediate"] = Field(
        "exponential", description="The policy of failed workflows that name none.", examples=["exponential"]
    )
    dlq_default_max_retries: int = Field(
        3, ge=0, le=10, description="Retries of a failed workflow that names no number.", examples=[3]
    )
    dlq_retry_processor_enabled: bool = Field(
        default=True, description="Retry failed workflows in the background.", examples=["true"]
    )
    dlq_retry_interval_seconds: int = Field(
        60, ge=10, le=3_600, description="How often due workflows are looked for.", examples=[60]
    )

    inbox: Annotated[dict[str, Any], NoDecode] = Field(
        {},
        description="The webhook inbox: `[inbox]`, with a table `[inbox.sources.NAME]` for each sender.",
        examples=[{"sources": {"stripe": {"secrets": ["env:STRIPE_SECRET"]}}}],
    )

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        if not _URL.fullmatch(value):
            raise ValueError("it must be a URL")
        return value

    @field_validator("app")
    @classmethod
    def _is_app(cls, value: str | None) -> str | None:
        if value is not None and not _APP.fullmatch(value):
            raise ValueError("it must be a module and an attribute")
        return value

    @field_validator("retry_budget")
    @classmethod
    def _is_budget(cls, value: str | None) -> str | None:
        try:
            BudgetRules.parse(value or OFF)
        except PolicyError:
            raise ValueError("it must be on, off, or some of ratio, floor, burst and longest as numbers") from None
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _none_is_absent(cls, value: object) -> object:
        """Let `REDRIVE_RETENTION_DELIVERED_DAYS=none` say what TOML and the environment cannot."""
        return None if isinstance(value, str) and value.strip().lower() == "none" else value

    @property
    def budget(self) -> BudgetRules | None:
        """The retry budget of queues that name none, or None."""
        return BudgetRules.parse(self.retry_budget or OFF)

    @property
    def retention(self) -> Retention:
        """How long letters are kept, as stores take it."""
        return Retention(
            delivered=_seconds(self.retention_delivered_days),
            archived=_seconds(self.retention_archived_days),
            failed=_seconds(self.retention_failed_days),
            handled=_seconds(self.retention_handled_days),
        )

    @property
    def inbox_config(self) -> InboxConfig:
        """The inbox's own settings, from `[inbox]` and `MAX_ATTEMPTS` …; raise SettingsError with every problem."""
        return read_inbox(os.environ, self.inbox)

    def secret(self, reference: str) -> str:
        """Return what `env:NAME` or `file:PATH` holds; raise SettingsError, which shows nothing of it."""
        return _read_secret(reference)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Put the file, which `load` hands in as one argument, below the environment."""
        given = dict(init_settings())
        from_file = InitSettingsSource(settings_cls, given.pop("_file", {}))
        return InitSettingsSource(settings_cls, given), env_settings, from_file


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
    as if they were meant and are not read are told in the log.
    """
    for told in unread(os.environ):
        logging.getLogger("redrive.kafka").warning("%s", told)
    kafka = {name: value for name, value in given.items() if value is not None}
    return read_configs(os.environ, kafka=kafka)


def masked(url: str) -> str:
    """Return *url* without its password; of what is no URL, nothing before an @ is shown."""
    if "@" in url and not _URL.fullmatch(url):
        return f"***@{url.rpartition('@')[2]}"
    return _SECRET_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


def _read_secret(reference: str) -> str:
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
        import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 - needs the extra `yaml`
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


def _seconds(days: float | None) -> float | None:
    return None if days is None else days * _DAY
