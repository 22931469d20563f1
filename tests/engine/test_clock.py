from __future__ import annotations

import os
import subprocess
import sys
import uuid

from redrive.engine.clock import SystemClock, new_id


def test_ids_are_uuids_of_version_7_that_grow():
    ids = [new_id() for _ in range(20_000)]

    assert ids == sorted(set(ids))
    assert all(str(uuid.UUID(one)) == one for one in ids[:100])
    assert {(uuid.UUID(one).version, uuid.UUID(one).variant) for one in ids[:1000]} == {(7, uuid.RFC_4122)}


FORK = """
import os
from redrive.engine.clock import new_id
new_id()
who = os.fork()
os.write(1, "".join(f"{new_id()} " for _ in range(100)).encode())  # in one piece
if who:
    os.waitpid(who, 0)
"""


def test_a_fork_makes_other_ids_than_its_parent():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run([sys.executable, "-c", FORK], env=environment, capture_output=True, text=True, check=True)
    tails = [one[19:] for one in ran.stdout.split()]

    assert len(tails) == 200
    assert len(set(tails)) == 200


def test_the_die_stays_in_its_range():
    clock = SystemClock()
    assert all(0 <= clock.draw() < 1 for _ in range(1000))
