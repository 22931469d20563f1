"""
One sender of webhooks, as a frozen value.

Owns the presets of the providers, every option of a source, and the sentences that say what is wrong with one; all
problems are reported at once. Holds references to secrets, never the secrets. Knows no request and no store.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from redrive.core.checks.did_you_mean import did_you_mean
from redrive.errors import SettingsError
from redrive.sources.webhook.forwarding.forward import Forward
from redrive.sources.webhook.secrets import WRITTEN, read_reference
from redrive.sources.webhook.signatures.verdict import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redrive.core.policy import ErrorNames

Preset = Literal["standard", "stripe", "github", "slack", "shopify", "twilio", "hmac", "plain"]
PRESETS: tuple[Preset, ...] = ("standard", "stripe", "github", "slack", "shopify", "twilio", "hmac", "plain")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_GITHUB_BODY = 26_214_400  # bytes: GitHub's own limit
_TEXTS = ("header", "prefix", "separator", "timestamp_header", "id_header", "id_field", "type_header", "type_field")
_HEADERS = ("header", "timestamp_header", "id_header", "type_header")
_LISTS = ("secrets", "events", "terminal_errors")


@dataclass(frozen=True, kw_only=True, repr=False)
class Source:
    """
    One sender. `Source.stripe(secrets=["env:STRIPE_SECRET"])` and its siblings make one; so does a table in TOML.

    *events* are globs of the types that are wanted. *dedupe* is "body" (an event without an id counts as a duplicate
    if the same bytes arrived within 10 minutes) or "id" (it does not). *public_url* is the address that Twilio was
    given. *id_field* and its siblings are paths into a JSON body, such as "data.object.id".
    """

    name: str
    preset: Preset
    secrets: tuple[str, ...] = ()
    insecure: bool = False
    events: tuple[str, ...] = ("*",)
    dedupe: Literal["body", "id"] = "body"
    forward: Forward | None = None
    public_url: str | None = None
    terminal_errors: ErrorNames = ()
    max_body: int | None = None  # bytes; the inbox's if absent
    header: str = ""  # from here on for `hmac`
    algorithm: Literal["sha256", "sha1", "sha512"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: str = ""
    separator: str = "."
    timestamp_header: str | None = None
    tolerance: float = TOLERANCE  # seconds
    id_header: str | None = None
    id_field: str | None = None
    type_header: str | None = None
    type_field: str | None = None
    key_field: str | None = None  # what orders forwards; events with the same value keep their order
    sequence_field: str | None = None  # a number that grows by one; `redrive inbox gaps` looks for holes

    def __post_init__(self) -> None:
        """Read lists and a forward given as text, then raise SettingsError with every problem."""
        for name in _LISTS:
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        problems = []
        try:
            object.__setattr__(self, "forward", Forward.read(self.forward))
        except SettingsError as error:
            problems = [f"source {self.name!r}: {problem}" for problem in error.problems]
            object.__setattr__(self, "forward", None)
        problems += [f"source {self.name!r}: {problem}" for problem in _problems(self)]
        if problems:
            raise SettingsError(problems)

    def __repr__(self) -> str:
        """Return its name and preset; references to secrets are left out."""
        return f"Source({self.name!r}, preset={self.preset!r})"

    # ------------------------------------------------------------------ named constructors

    @classmethod
    def standard(cls, name: str = "standard", **options: Any) -> Source:
        """Return a sender that signs by Standard Webhooks (or Svix)."""
        return cls(name=name, preset="standard", **options)

    @classmethod
    def stripe(cls, name: str = "stripe", **options: Any) -> Source:
        """Return Stripe."""
        return cls(name=name, preset="stripe", **options)

    @classmethod
    def github(cls, name: str = "github", **options: Any) -> Source:
        """Return GitHub, whose bodies may have 25 MiB."""
        options.setdefault("max_body", _GITHUB_BODY)
        return cls(name=name, preset="github", **options)

    @classmethod
    def slack(cls, name: str = "slack", **options: Any) -> Source:
        """Return Slack; its `url_verification` is answered and not kept."""
        return cls(name=name, preset="slack", **options)

    @classmethod
    def shopify(cls, name: str = "shopify", **options: Any) -> Source:
        """Return Shopify."""
        return cls(name=name, preset="shopify", **options)

    @classmethod
    def twilio(cls, name: str = "twilio", **options: Any) -> Source:
        """Return Twilio; it signs the address, so *public_url* says what that is."""
        return cls(name=name, preset="twilio", **options)

    @classmethod
    def hmac(cls, name: str = "hmac", **options: Any) -> Source:
        """Return any sender that puts an HMAC into *header*."""
        return cls(name=name, preset="hmac", **options)

    @classmethod
    def plain(cls, name: str = "webhooks", **options: Any) -> Source:
        """Return a sender that posts `{idempotency_key, event_type, payload}`; its secrets sign as `standard` does."""
        return cls(name=name, preset="plain", **options)


def read_source(name: str, table: Mapping[str, Any]) -> Source:
    """Return the source that a table such as `[inbox.sources.stripe]` describes; raise SettingsError."""
    preset = table.get("preset", name if name in PRESETS else None)
    known = [field.name for field in fields(Source) if field.name != "name"]
    problems = [f"source {name!r}: {key} is no option{did_you_mean(key, known)}" for key in table if key not in known]
    if preset not in PRESETS:
        problems.append(
            f"source {name!r}: preset is {preset!r} and must be one of {', '.join(PRESETS)}"
            f"{did_you_mean(str(preset or name), PRESETS)}"
        )
    options = {key: value for key, value in table.items() if key in known and key != "preset"}
    try:
        return _of_preset(name, preset if preset in PRESETS else "plain", options, problems)
    except TypeError as error:
        raise SettingsError([*problems, f"source {name!r}: {error}"]) from None


def _of_preset(name: str, preset: str, options: dict[str, Any], problems: list[str]) -> Source:
    try:
        made: Source = getattr(Source, preset)(name, **options)
    except SettingsError as error:
        raise SettingsError(problems + error.problems) from None
    if problems:
        raise SettingsError(problems)
    return made


# ---------------------------------------------------------------------- what is wrong with one


def _problems(source: Source) -> Iterator[str]:
    if not (isinstance(source.name, str) and _NAME.fullmatch(source.name)):
        yield "its name is part of an address and of kinds; use up to 64 of a-z, 0-9, - and _"
    if source.preset not in PRESETS:
        yield f"preset is {source.preset!r} and must be one of {', '.join(PRESETS)}"
    yield from _secret_problems(source)
    yield from _choice_problems(source)
    yield from _text_problems(source)
    if source.preset == "twilio" and not _is_address(source.public_url):
        yield "public_url is missing: Twilio signs the address it was given, such as https://example.com/hooks/twilio"
    if source.preset == "hmac" and not source.header:
        yield "header is missing: it names the header that holds the signature"
    if source.preset != "hmac" and source.header:
        yield f"header is for the preset hmac; {source.preset} knows its own"


def _secret_problems(source: Source) -> Iterator[str]:
    if any(read_reference(text) is None for text in source.secrets):
        yield f"a secret is not a reference; {WRITTEN}"  # what was given may be the secret
    if source.insecure not in (True, False):
        yield "insecure must be true or false"
    if not source.secrets and source.insecure is not True:
        yield "it has no secret; give secrets = ['env:NAME'], or say insecure = true to take what anyone sends"
    if source.secrets and source.insecure is True:
        yield "it has secrets and insecure = true; leave one of them out"


def _choice_problems(source: Source) -> Iterator[str]:
    choices = {"dedupe": ("body", "id"), "algorithm": ("sha256", "sha1", "sha512"), "encoding": ("hex", "base64")}
    for name, allowed in choices.items():
        if getattr(source, name) not in allowed:
            yield f"{name} is {getattr(source, name)!r} and must be {' or '.join(allowed)}"
    if not all(isinstance(glob, str) and glob for glob in source.events) or not source.events:
        yield "events must be a list of globs, such as ['invoice.*']; leave it out to take all"
    if source.max_body is not None and (type(source.max_body) is not int or source.max_body < 1):
        yield f"max_body is {source.max_body!r} and must be a number of bytes"
    is_number = isinstance(source.tolerance, int | float) and not isinstance(source.tolerance, bool)
    if not (is_number and 0 < source.tolerance <= 86_400):  # noqa: PLR2004 - a day: beyond it nothing expires
        yield f"tolerance is {source.tolerance!r} and must be a number of seconds from 1 to 86400"


def _text_problems(source: Source) -> Iterator[str]:
    for name in (*_TEXTS, "key_field", "sequence_field"):
        value = getattr(source, name)
        if value is not None and not isinstance(value, str):
            yield f"{name} is {value!r} and must be text"
        elif name in _HEADERS and value and not _HEADER.fullmatch(value):
            yield f"{name} is {value!r} and must be the name of a header"
    for entry in source.terminal_errors:
        if not (isinstance(entry, str) or (isinstance(entry, type) and issubclass(entry, BaseException))):
            yield f"terminal_errors holds {entry!r}, which is neither an exception class nor the name of one"


def _is_address(url: str | None) -> bool:
    try:
        parts = urlsplit(url or "")
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def names_of(sources: Sequence[Source]) -> dict[str, Source]:
    """Return the sources by name; raise SettingsError if two have one name."""
    found = {source.name: source for source in sources}
    if len(found) != len(sources):
        raise SettingsError(["two sources have the same name; give one of them another: Source.stripe('stripe-eu', …)"])
    return found
