"""Letters and tasks: what is kept of a task comes back, whatever it holds."""

from __future__ import annotations

from datetime import UTC

from hypothesis import given
from hypothesis import strategies as st

from redrive.core import changes
from redrive.core.letter import Status
from redrive.engine.clock import new_id
from redrive.sources.workflow import mapping, policies
from redrive.sources.workflow.mapping import Call, Terms
from redrive.sources.workflow.policies import RetryPolicy
from redrive.sources.workflow.retrying.running import failure_of
from redrive.workflow import DeadLetterStatus, FailedTask

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
TASKS = st.dictionaries(TEXT, PLAIN, max_size=4)
NOW = 1_800_000_000_000_000


@given(TASKS, st.lists(TEXT, max_size=3), TEXT, st.sampled_from(RetryPolicy), st.integers(0, 10), TASKS, TEXT)
def test_a_task_comes_back_from_its_letter(task, repos, error, word, retries, metadata, breaker):
    policy = policies.policy_of(word, retries)
    failure = failure_of(error)
    terms = Terms(retries, "none", by_category=False, breaker=breaker, error=failure.message)
    draft = mapping.draft_of(new_id(), "workflow", "wf_1", Call(task, repos), failure, policy, terms, 0.5)
    letter = changes.accepted(mapping.with_metadata(draft, metadata, ()), NOW)
    found = mapping.task_of(letter)
    assert (found.task, found.repos, found.metadata, found.max_retries) == (task, repos, metadata, retries)
    assert (found.retry_policy, found.retry_count, found.total_attempts) == (word, 0, 0)
    assert mapping.terms_of(letter) == terms
    assert found.failed_at.tzinfo is UTC
    waits = word is not RetryPolicy.NEVER and retries > 0
    assert (found.next_retry_at is not None) == waits
    assert (found.status is DeadLetterStatus.EXHAUSTED) == (word is not RetryPolicy.NEVER and retries == 0)
    assert FailedTask.from_dict(found.to_dict()) == found


@given(st.binary(max_size=40))
def test_a_payload_that_was_edited_to_anything_is_still_a_task(payload):
    failure = failure_of("timeout")
    draft = mapping.draft_of(
        new_id(), "workflow", "wf_1", Call({}, []), failure, RetryPolicy.LINEAR.policy, Terms(3), 0.5
    )
    letter = changes.edited(changes.accepted(draft, NOW), payload, "application/json", NOW)
    assert mapping.task_of(letter).task_id == "wf_1"
    assert letter.status is Status.PENDING
