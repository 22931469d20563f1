"""
Every setting: its name, default, bounds and meaning.

Owns the settings as one value, and what other rooms take from it. Knows no file: `loading` reads them.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, NoDecode, SettingsConfigDict

from redrive.core.budget import OFF, BudgetRules
from redrive.errors import PolicyError
from redrive.settings.secrets import read_secret
from redrive.sources.webhook.environment import read_inbox
from redrive.stores.contract import Retention

if TYPE_CHECKING:
    from pydantic_settings import PydanticBaseSettingsSource

    from redrive.sources.webhook.config import InboxConfig

FILE = "redrive.toml"
PREFIX = "REDRIVE_"
_DAY = 86_400.0
_URL = re.compile(r"[a-z][a-z0-9+.-]*://.*", re.DOTALL)
_APP = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


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
    retention_plans_days: float | None = Field(
        90,
        ge=0,
        description="How long plans are kept after they are done or halted; absent keeps them for ever.",
        examples=[90],
    )
    retry_budget: str | None = Field(
        None,
        description="A retry budget for every queue that names none itself: `on`, or its ratio, floor and burst.",
        examples=["ratio=0.2,floor=10,burst=100"],
    )
    release: str | None = Field(
        None, description="The version of the code, kept with each failure.", examples=["1.4.2"]
    )
    by: str | None = Field(None, description="The name in the audit log; default: user@host.", examples=["ana@ops"])
    log_format: Literal["console", "json"] = Field("console", description="How log lines look.", examples=["json"])
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least important log lines shown.", examples=["info"]
    )
    pipeline_token: str | None = Field(
        None,
        description="Where the token of the pipeline's admin service is; needed on any address but loopback.",
        examples=["env:PIPELINE_TOKEN"],
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
    tracing: bool | None = Field(
        None,
        description="Spans and metrics by OpenTelemetry; absent makes them if the application has set up a tracer.",
        examples=["true"],
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
            plans=_seconds(self.retention_plans_days),
        )

    @property
    def inbox_config(self) -> InboxConfig:
        """The inbox's own settings, from `[inbox]` and `MAX_ATTEMPTS` …; raise SettingsError with every problem."""
        return read_inbox(os.environ, self.inbox)

    def secret(self, reference: str) -> str:
        """Return what `env:NAME` or `file:PATH` holds; raise SettingsError, which shows nothing of it."""
        return read_secret(reference)

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


def _seconds(days: float | None) -> float | None:
    return None if days is None else days * _DAY
