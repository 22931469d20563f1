"""
Everything redrive raises.

RedriveError
├── SettingsError            settings are missing or make no sense (all problems at once)
├── QueryError               a query cannot be read
├── PolicyError              a policy makes no sense
├── HandlerError             a handler cannot be registered or found
├── DraftError               a letter cannot be made of what was given
│   └── PayloadError         a payload cannot be written as bytes
├── LetterNotFound           no letter has this id
├── TaskNotFound             no failed workflow has this task_id (also a ValueError)
├── AmbiguousId              several letters have an id that ends like this
├── PlanNotFound             no plan has this id
├── MoveRefused              the letter's status does not allow this
├── EditConflict             the letter was changed since it was read
├── QueueFull                the queue holds its maximum of letters (also a ValueError)
├── CopyRefused              letters cannot be copied from this store, or to that one
├── NotSupported             this store cannot do that
├── SourceError              a source cannot be used as asked
├── WorkerExhausted          too many of a worker's threads hang; start it again
└── StoreError
    ├── StoreUnavailable     try again later; nothing was acknowledged
    │   └── SpoolFull        the store is away, and the spool holds its maximum of letters
    ├── StoreClosed          the store was closed
    ├── StoreDamaged         the file is not a redrive database, or it is broken
    └── SchemaMismatch       the database's schema does not fit this version of redrive

What a handler raises to steer its letter does not derive from RedriveError:
Reject (terminal, also named TerminalHandlerError) and RetryAfter.

Owns the tree of errors. Knows nothing else: every room may import it.
"""


class RedriveError(Exception):
    """Everything redrive raises derives from this."""


class SettingsError(RedriveError):
    """Settings are missing or make no sense; *problems* holds every one of them."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class QueryError(RedriveError):
    """A query cannot be read; the message marks the place."""


class PolicyError(RedriveError):
    """A retry policy makes no sense."""


class HandlerError(RedriveError):
    """A handler cannot be registered or found."""


class DraftError(RedriveError):
    """A letter cannot be made of what was given; nothing was kept."""


class PayloadError(DraftError):
    """A payload cannot be written as bytes."""


class LetterNotFound(RedriveError):
    """No letter has this id."""

    def __init__(self, letter_id: str) -> None:
        self.letter_id = letter_id
        super().__init__(f"no letter has the id {letter_id!r}; `redrive ls` lists what is kept")


class TaskNotFound(RedriveError, ValueError):
    """No failed workflow has this task_id."""

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        super().__init__(f"no task has the id {task_id!r}; list_tasks() and `redrive ls` list what is kept")


class AmbiguousId(RedriveError):
    """Several letters have an id that ends like this; nothing was done."""

    def __init__(self, given: str, candidates: list[str], *, more: bool = False) -> None:
        self.given, self.candidates = given, candidates
        named = "; ".join([*candidates, "and more"] if more else candidates)
        super().__init__(f"several letters have an id that ends in {given!r}; give more of it: {named}")


class PlanNotFound(RedriveError):
    """No plan has this id."""

    def __init__(self, plan_id: str) -> None:
        self.plan_id = plan_id
        super().__init__(
            f"no plan has the id {plan_id!r}; starting a plan prints its id, and "
            "plans that have ended are removed after `retention_plans_days`"
        )


class MoveRefused(RedriveError):
    """The letter's status does not allow this."""


class EditConflict(RedriveError):
    """The letter was changed since it was read; nothing was written."""


class QueueFull(RedriveError, ValueError):
    """The queue holds its maximum of letters; none of the call's letters was kept."""

    def __init__(self, queue: str, max_size: int) -> None:
        self.queue, self.max_size = queue, max_size
        super().__init__(
            f"queue {queue!r} holds its maximum of {max_size} unfinished letter{'s' * (max_size != 1)} "
            "and took none of these; "
            "enqueue again later, add workers, or raise the queue's max_size"
        )


class CopyRefused(RedriveError):
    """Letters cannot be copied from this store now, or to that one; none was copied."""


class NotSupported(RedriveError):
    """This store cannot do that; see its `features`."""


class SourceError(RedriveError):
    """A source, or the broker behind it, cannot be used as asked."""


class WorkerExhausted(RedriveError):
    """Too many of a worker's threads hang in handlers that ran out of time; start the worker again."""


class StoreError(RedriveError):
    """The store could not do its work."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or cannot write now; nothing was acknowledged, try again later."""


class SpoolFull(StoreUnavailable):
    """The store is away, and the spool in front of it holds its maximum of letters; nothing was kept."""

    def __init__(self, path: str, limit: int) -> None:
        self.path, self.limit = path, limit
        super().__init__(
            f"cannot keep the letter: the store is away or still behind, and the spool {path!r} holds its maximum of "
            f"{limit} letters; nothing was kept. Bring the store back, or raise spool_limit"
        )


class StoreClosed(StoreError):
    """The store was closed."""


class StoreDamaged(StoreError):
    """The file is not a redrive database, or it is broken."""


class SchemaMismatch(StoreError):
    """The database's schema does not fit this version of redrive; the message names the way out."""


class Reject(Exception):  # users raise it to reject: it reads as the verb
    """Raise it in a handler: this letter can never succeed, dead-letter it now."""


TerminalHandlerError = Reject


class RetryAfter(Exception):  # users raise it to ask for time
    """Raise it in a handler: try again, but not before *seconds* from now."""

    def __init__(self, seconds: float, message: str = "") -> None:
        self.seconds = max(0.0, float(seconds))
        super().__init__(message or f"asked to wait {self.seconds:g} s")
