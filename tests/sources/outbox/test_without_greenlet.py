"""A program that never awaits uses the outbox with a SQLAlchemy that has no greenlet."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules["greenlet"] = None  # importing it fails, as where it is not installed
import sqlalchemy as sa
from sqlalchemy.orm import Session
from redrive import Redrive

url = sys.argv[1]
engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
with Session(engine) as session, session.begin():
    print(Redrive(url).outbox(session).enqueue("order.paid", {"order": 17}).duplicate)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("app")
def test_a_blocking_session_needs_no_greenlet(url):
    command = [sys.executable, "-c", PROGRAM, url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, "False\n"), ended.stderr
