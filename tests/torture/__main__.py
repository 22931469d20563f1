"""
`python -m tests.torture [NAME] [--cycles N] [--seconds S] [--seed S] [--resume] [--evidence FILE]`.

Without a name all long forms run, one after the other. Ends with 1 as soon as something
is wrong, and prints the line that replays it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.torture import evidence, legs

SEED = 1


def main() -> int:
    options = _options()
    names = [options.name] if options.name else list(legs.FORMS)
    end = time.monotonic() + options.seconds if options.seconds else float("inf")
    return max(_run(name, options, end) for name in names)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description="Long fault runs on the real stores.")
    parser.add_argument("name", nargs="?", choices=list(legs.FORMS), help="one form; all of them if absent")
    parser.add_argument("--cycles", type=int, help="how many in all; each form has its own default")
    parser.add_argument("--seconds", type=float, help="begin no new leg after so many seconds")
    parser.add_argument("--seed", type=int, default=SEED, help="where the first leg begins")
    parser.add_argument("--resume", action="store_true", help="go on with the run in the evidence file")
    parser.add_argument("--evidence", type=Path, help="the file to write; evidence/NAME.json if absent")
    return parser.parse_args()


def _run(name: str, options: argparse.Namespace, end: float) -> int:
    form = legs.FORMS[name]
    path = options.evidence or evidence.FOLDER / f"{name}.json"
    found = evidence.begin(name, options.seed, options.cycles or form.target, path, resume=options.resume)
    while found.done < found.target and time.monotonic() < end and not found.problems:
        cycles = min(form.size, found.target - found.done)
        seed = options.seed + found.legs
        leg, seconds = legs.run_leg(name, seed, cycles)
        replay = f"replay: python -m tests.torture {name} --seed {seed} --cycles {cycles} --evidence /tmp/{name}.json"
        problems = [f"{replay} :: {problem}" for problem in leg.problems]
        found.add(leg.counts, cycles=leg.cycles, seconds=seconds, problems=problems, **leg.worst)
        found.save(path)
        print(f"{name}: {found.done}/{found.target} in {found.seconds:.0f} s {found.counts} {found.worst}", flush=True)
    for problem in found.problems:
        print(problem, file=sys.stderr)
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
