"""
Why a letter moved.

Owns every reason that redrive writes to a letter, an attempt log or a fact, and how to read one back.
A reason is kept as text, so a value never changes once letters carry it. Knows no rule: `decide`, the
engine and the stores choose a reason.
"""

from __future__ import annotations

from enum import StrEnum

_NAME = "{}"


class Why(StrEnum):
    """One reason. A value with `{}` is a form: `naming` puts a name there, and `why_of` finds the member again."""

    # the letter arrives
    ENQUEUED = "enqueued"
    COLLECTED = "collected"  # another system's dead letter
    FAILED_ELSEWHERE = "failed elsewhere"  # another system tried it first; it waits for its retry here

    # an attempt ended
    SUCCEEDED = "succeeded"
    BROADCAST = "broadcast"  # the event is delivered: each subscriber got a letter of its own
    BACKING_OFF = "backing off"
    ASKED_TO_WAIT = "asked to wait"  # the error brought a Retry-After
    TERMINAL = "terminal"
    EXHAUSTED = "exhausted"  # no attempts are left
    OUT_OF_TIME = "out of time"  # the policy's total time is used up
    REDRIVE_FAULT = "redrive_fault"
    AFTER_FAILED = "after_failed"  # a letter that it waits for is dead, and it said that it fails with it

    # the claim was lost with its process
    WORKER_LOST = "worker lost"
    WORKER_DIED = "worker {} died, or hung until its lease ended"
    PROCESS_ENDED = "its process {}"
    WORKER_CRASHED = "worker_crashed"  # too many losses

    # the worker gave the claim back
    INTERRUPTED = "interrupted"
    GIVEN_BACK = "given back"  # so that a suspect can run alone
    WAITS_TO_RUN_ALONE = "waits to run alone"  # the suspect, when other letters would not end
    WAITED_TOO_LONG = "waited too long for a slot"  # claimed ahead, and then the handler became slow
    QUEUE_PAUSED = "its queue is paused"
    SHUTDOWN = "shutdown"
    STOPPED = "stopped"
    HELD_BY_BREAKER = "held by breaker {}"
    UNKNOWN_BACKOFF = "its backoff function {} is not registered in this worker"
    TOO_MANY_THREADS = "too many threads hang in handlers that ran out of time"
    NO_WORKER_PROCESS = "no worker process can start: {}"

    # an operator acted
    REPLAYED = "replayed"
    ARCHIVED_BY = "archived by {}"
    RESTORED_BY = "restored by {}"

    def naming(self, name: str) -> str:
        """Return this reason with *name* in it."""
        return self.value.replace(_NAME, name, 1)


def why_of(text: str | None) -> Why | None:
    """Return the reason that *text* states; None if this version of redrive does not know it."""
    if text is None:
        return None
    known = _PLAIN.get(text)
    return known or next((why for why, (head, tail) in _FORMS.items() if _fits(text, head, tail)), None)


def _fits(text: str, head: str, tail: str) -> bool:
    return len(text) > len(head) + len(tail) and text.startswith(head) and text.endswith(tail)


_FORMS = {why: tuple(why.value.split(_NAME)) for why in Why if _NAME in why.value}
_PLAIN = {why.value: why for why in Why if why not in _FORMS} | {"released": Why.GIVEN_BACK}  # as it was once written
