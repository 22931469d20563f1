"""The names that users hold: a change here is a change of the public surface, and is meant."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import redrive
from redrive.sources import kafka, webhook

PUBLIC = [
    "Category",
    "DEFAULT_RETRY_POLICY",
    "Draft",
    "FailureCycle",
    "Letter",
    "Priority",
    "Redrive",
    "RedriveError",
    "Reject",
    "RetryAfter",
    "RetryPolicy",
    "Status",
    "TerminalHandlerError",
    "__version__",
    "retry",
]

KAFKA = [
    "Assignment",
    "AsyncExecutionEngine",
    "BatchExecutionEngine",
    "BatchFailed",
    "BrokerPoller",
    "Collector",
    "CompletionEvent",
    "CompletionStatus",
    "Counts",
    "DeadLetterCodec",
    "DeadLetterNames",
    "Disposition",
    "ExecutionConfig",
    "FailedRecord",
    "Health",
    "KafkaConfig",
    "KafkaSender",
    "MessageParts",
    "Output",
    "ParallelConsumer",
    "PartitionStatus",
    "ProcessExecutionEngine",
    "Record",
    "Standing",
    "Work",
    "WorkManager",
    "WorkerFactory",
    "record_handler",
]

# The import names of every optional dependency.
OPTIONAL = [
    "argon2",
    "asyncpg",
    "cel_expr_python",
    "confluent_kafka",
    "cryptography",
    "django",
    "google.protobuf",
    "grpc",
    "httptools",
    "httpx2",
    "jinja2",
    "mcp",
    "obstore",
    "opensearchpy",
    "opentelemetry",
    "prometheus_client",
    "psycopg",
    "sentry_sdk",
    "sqlalchemy",
    "ssrfguard",
    "starlette",
    "uvicorn",
    "uvloop",
    "yaml",
]


def test_the_public_names_are_these_and_in_order():
    assert list(redrive.__all__) == PUBLIC
    assert sorted(PUBLIC) == PUBLIC


def test_every_public_name_is_there():
    assert [name for name in PUBLIC if not hasattr(redrive, name)] == []


def test_the_public_names_of_the_kafka_consumer_are_these_and_in_order():
    assert list(kafka.__all__) == KAFKA
    assert sorted(KAFKA) == KAFKA
    assert [name for name in KAFKA if not hasattr(kafka, name)] == []


def test_the_public_names_of_the_webhook_inbox_are_these_and_in_order():
    assert list(webhook.__all__) == ["Forward", "Inbox", "Source"]
    assert [name for name in webhook.__all__ if not hasattr(webhook, name)] == []


def test_the_version_is_the_packages():
    pyproject = Path(__file__).parents[1] / "pyproject.toml"
    assert redrive.__version__ == tomllib.loads(pyproject.read_text())["project"]["version"]


def test_import_redrive_needs_no_optional_dependency():
    code = f"""
import sys
for name in {OPTIONAL!r}:
    sys.modules[name] = None  # importing it now fails as if it were not installed
import redrive
for name in redrive.__all__:
    getattr(redrive, name)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
