"""
When and how often to try again.

Owns every delay formula. A policy is one frozen value that counts tries, never retries.
It draws no random number: the caller brings the draw. It does not judge errors: its two
lists are read by `classify`, its limits by `decide`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, ClassVar, TypedDict, Unpack

from redrive.core.policy import text as policy_text
from redrive.core.policy.problems import LONGEST, problems_of, span_of
from redrive.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable

MINUTE = 60.0
_DOUBLE = 2.0
ErrorNames = tuple[type[BaseException] | str, ...]


class Limits(TypedDict, total=False):
    """What every policy that retries may also say."""

    total: float | None
    terminal_errors: ErrorNames
    retryable_errors: ErrorNames


class Backoff(StrEnum):
    """How the wait grows from try to try."""

    NEVER = "never"
    IMMEDIATE = "immediate"
    CONSTANT = "constant"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RetryPolicy:
    """
    When and how often to try again, as one value.

    `RetryPolicy()` is the default policy; other backoffs are made by its named constructors. Raises PolicyError
    with every problem at once.
    *jitter* is `none`, `full` (anything up to the wait), `equal` (half of it fixed) or
    `additive(span)` (the wait plus up to *span* seconds, also beyond the cap).
    *total* limits how many seconds a cycle may last. Errors are named by class or by text,
    such as `"sqlalchemy.exc.IntegrityError"`.
    """

    backoff: Backoff = Backoff.EXPONENTIAL
    first: float = 1.0  # seconds after the first try
    cap: float = 300.0  # seconds; no wait before additive jitter is longer
    multiplier: float = _DOUBLE
    jitter: str = "full"
    max_attempts: int = 5  # tries, the first included
    total: float | None = None
    terminal_errors: ErrorNames = ()
    retryable_errors: ErrorNames = ()
    function: Callable[[int], float] | None = None
    name: str = ""  # of a registered backoff function: letters can carry it, and workers look the function up
    span: float = field(init=False, compare=False, default=0.0)  # of additive jitter, in seconds
    text: str = field(init=False, compare=False, default="")  # canonical; `parse` reads it

    NEVER: ClassVar[RetryPolicy]
    LINEAR: ClassVar[RetryPolicy]
    EXPONENTIAL: ClassVar[RetryPolicy]
    IMMEDIATE: ClassVar[RetryPolicy]

    def __post_init__(self) -> None:
        """Check everything, then keep what hot paths read."""
        problems = problems_of(self)
        if problems:
            raise PolicyError(f"this {self.backoff} retry policy makes no sense: " + "; ".join(problems))
        kept = {name: float(getattr(self, name)) for name in ("first", "cap", "multiplier")}
        kept["span"] = span = span_of(self.jitter) or 0.0
        for name, value in kept.items():
            object.__setattr__(self, name, value)
        if self.jitter.startswith("additive"):
            object.__setattr__(self, "jitter", f"additive({policy_text.number(span)})" if span else "none")
        for name in ("terminal_errors", "retryable_errors"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "text", _text(self))

    def __repr__(self) -> str:
        """Return it as it could be parsed."""
        return f"RetryPolicy({self.text!r})"

    # ------------------------------------------------------------------ named constructors

    @classmethod
    def exponential(
        cls,
        first: float = 1,
        cap: float = 300,
        multiplier: float = 2,
        max_attempts: int = 5,
        jitter: str = "full",
        **limits: Unpack[Limits],
    ) -> RetryPolicy:
        """Wait *first* seconds, then *multiplier* times as long each time, at most *cap*."""
        return cls(
            backoff=Backoff.EXPONENTIAL,
            first=first,
            cap=cap,
            multiplier=multiplier,
            max_attempts=max_attempts,
            jitter=jitter,
            **limits,
        )

    @classmethod
    def linear(
        cls,
        step: float = 5,
        cap: float = LONGEST,
        max_attempts: int = 5,
        jitter: str = "none",
        **limits: Unpack[Limits],
    ) -> RetryPolicy:
        """Wait *step* seconds, then *step* longer each time, at most *cap*."""
        return cls(
            backoff=Backoff.LINEAR,
            first=step,
            cap=cap,
            max_attempts=max_attempts,
            jitter=jitter,
            **limits,
        )

    @classmethod
    def constant(
        cls,
        delay: float = 5,
        max_attempts: int = 5,
        jitter: str = "none",
        **limits: Unpack[Limits],
    ) -> RetryPolicy:
        """Wait *delay* seconds each time."""
        return cls(
            backoff=Backoff.CONSTANT,
            first=delay,
            cap=delay,
            max_attempts=max_attempts,
            jitter=jitter,
            **limits,
        )

    @classmethod
    def immediate(
        cls,
        max_attempts: int = 5,
        **limits: Unpack[Limits],
    ) -> RetryPolicy:
        """Try again in the next round."""
        return cls(
            backoff=Backoff.IMMEDIATE,
            first=0.0,
            cap=0.0,
            jitter="none",
            max_attempts=max_attempts,
            **limits,
        )

    @classmethod
    def never(cls) -> RetryPolicy:
        """Try once; a failure waits for a person."""
        return cls(backoff=Backoff.NEVER, first=0.0, cap=0.0, jitter="none", max_attempts=1)

    @classmethod
    def custom(
        cls,
        function: Callable[[int], float],
        cap: float = 300,
        max_attempts: int = 5,
        jitter: str = "none",
        **limits: Unpack[Limits],
    ) -> RetryPolicy:
        """
        Wait what *function* returns for the number of the try that failed, counted from 1.

        A function that raises, or returns no number, gets the cap: a broken
        formula must not lose a letter.
        """
        return cls(
            backoff=Backoff.CUSTOM,
            function=function,
            first=0.0,
            cap=cap,
            max_attempts=max_attempts,
            jitter=jitter,
            **limits,
        )

    @classmethod
    def named(
        cls,
        name: str,
        cap: float = 300,
        max_attempts: int = 5,
        jitter: str = "none",
        **limits: Unpack[Limits],
    ) -> RetryPolicy:
        """
        Wait what the function that is registered as *name* returns: `app.backoff(name, function)`.

        A letter can carry such a policy. A worker without a function of that name leaves the letter pending.
        """
        return cls(
            backoff=Backoff.CUSTOM,
            name=name,
            first=0.0,
            cap=cap,
            max_attempts=max_attempts,
            jitter=jitter,
            **limits,
        )

    @classmethod
    def inbox(cls, base: float = 5, cap: float = 300, max_attempts: int = 5) -> RetryPolicy:
        """Return the inbox's policy: min(base * 2**attempts, cap) after try number *attempts*."""
        return cls.exponential(min(2 * base, cap), cap, max_attempts=max_attempts, jitter="none")

    @classmethod
    def kafka(
        cls,
        retry_backoff_ms: float = 1000,
        max_retry_backoff_ms: float = 30_000,
        retry_jitter_ms: float = 200,
        exponential_backoff: bool = True,  # noqa: FBT001, FBT002 - the Kafka consumer's own name for it
        max_retries: int = 3,
    ) -> RetryPolicy:
        """Return the Kafka consumer's policy; its *max_retries* counts tries, and its jitter is added."""
        first, cap = retry_backoff_ms / 1000, max_retry_backoff_ms / 1000
        jitter = f"additive({policy_text.number(retry_jitter_ms / 1000)})"
        if exponential_backoff:
            return cls.exponential(min(first, cap), cap, max_attempts=max_retries, jitter=jitter)
        return cls.constant(min(first, cap), max_attempts=max_retries, jitter=jitter)

    @classmethod
    def parse(cls, text: str) -> RetryPolicy:
        """Read `exponential`, `exponential:max_attempts=8`, `never` …; raise PolicyError with every problem."""
        return _parse(text)

    # ------------------------------------------------------------------ the arithmetic

    def delay(self, attempt: int, draw: float) -> float:
        """
        Return the seconds to wait after try number *attempt*, counted from 1.

        *draw* is in [0, 1). Never negative, never above the cap plus an additive span.
        """
        wait = min(self._wait(attempt), self.cap)
        match self.jitter:
            case "none":
                return wait
            case "full":
                return wait * draw
            case "equal":
                return wait / 2 + wait / 2 * draw
        return wait + self.span * draw

    def spread(self, draw: float) -> float:
        """Return the seconds to add to a Retry-After, so that all who were told the same do not return at once."""
        if self.jitter == "none":
            return 0.0
        if self.span:
            return self.span * draw
        return min(self._wait(1), self.cap) * draw

    def _wait(self, attempt: int) -> float:
        match self.backoff:
            case Backoff.EXPONENTIAL:
                return self._power(attempt - 1)
            case Backoff.LINEAR:
                return self._times(attempt)
            case Backoff.CONSTANT:
                return self.first
            case Backoff.CUSTOM:
                return self._ask(attempt)
        return 0.0

    def _power(self, exponent: int) -> float:
        if not self.first:
            return 0.0
        try:
            return self.first * self.multiplier**exponent
        except OverflowError:  # by then any cap has long won
            return self.cap

    def _times(self, attempt: int) -> float:
        try:
            return self.first * attempt
        except OverflowError:
            return self.cap if self.first else 0.0

    def _ask(self, attempt: int) -> float:
        try:
            wait = float(self.function(attempt))  # type: ignore[misc]  # one without is caught, too
        except Exception:  # noqa: BLE001 - a user's function may raise anything, and the letter still needs a wait
            return self.cap
        return max(0.0, wait) if isfinite(wait) else self.cap


# ---------------------------------------------------------------------- as text


def _text(policy: RetryPolicy) -> str:
    if policy.backoff is Backoff.CUSTOM and not policy.name:
        name = getattr(policy.function, "__qualname__", type(policy.function).__name__)
        settings = {"function": name, "cap": policy.cap, "max_attempts": policy.max_attempts}
        return policy_text.write(policy.backoff, settings)
    settings = {key: _setting(policy, key) for key in policy_text.KEYS[policy.backoff]}
    return policy_text.write(policy.backoff, {k: v for k, v in settings.items() if v is not None})


def _setting(policy: RetryPolicy, key: str) -> str | float | None:
    """Return the text of *key*, or None if the text should leave it out."""
    value: str | float | None = getattr(policy, "first" if key in {"step", "delay"} else key)
    uncapped = key == "cap" and policy.backoff is Backoff.LINEAR and value == LONGEST
    return None if uncapped or (key == "multiplier" and value == _DOUBLE) else value


@lru_cache(maxsize=256)  # a letter may carry its own policy, and thousands the same
def _parse(text: str) -> RetryPolicy:
    name, settings = policy_text.read(text)
    maker = "named" if name == Backoff.CUSTOM else name
    made: RetryPolicy = getattr(RetryPolicy, maker)(**settings)
    return made


# The workflow queue's four names. They allow its default of three retries, that is four tries.
RetryPolicy.NEVER = RetryPolicy.never()
RetryPolicy.LINEAR = RetryPolicy.linear(5 * MINUTE, max_attempts=4)
RetryPolicy.EXPONENTIAL = RetryPolicy.exponential(MINUTE, 60 * MINUTE, max_attempts=4, jitter="none")
RetryPolicy.IMMEDIATE = RetryPolicy.immediate(max_attempts=4)

DEFAULT_RETRY_POLICY = RetryPolicy()
