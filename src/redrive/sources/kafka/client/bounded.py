"""
A bound on calls that have none.

Owns the wait for a call of the Kafka client in a thread of its own. librdkafka ignores the time limit of
`send_offsets_to_transaction` while it waits for a group coordinator that has left the cluster, and then waits for ever.
Knows no transaction.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

if TYPE_CHECKING:
    from collections.abc import Callable


def within(seconds: float, call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what *call* returns; raise KafkaException if it does not return in time. Its thread then stays behind."""
    answer: Future[Any] = Future()
    threading.Thread(target=_answer, args=(answer, call, arguments), name="redrive-kafka-call", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        why = f"the Kafka client did not return within {seconds:g} s"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, why)) from None  # noqa: SLF001 - the client's own name


def _answer(answer: Future[Any], call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        answer.set_result(call(*arguments))
    except BaseException as error:  # noqa: BLE001 - the caller raises it
        answer.set_exception(error)
