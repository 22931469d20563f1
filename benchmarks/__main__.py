"""
`python -m benchmarks [NAME] [--quick] [--part PART]`: run one benchmark, a part of it, or all of them.

Owns the command line. A benchmark is a module with `run(*, quick) -> Report`; one in parts names them in `PARTS`, and
its `run(*, quick, part)` gives a report for each.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from benchmarks.fresh import CaseFailed
from benchmarks.report import publish

NAMES = ("handlers", "sqlite", "postgres", "kafka", "scenes", "retry", "workflow", "pipeline", "inbox")


def main() -> int:
    """Run what was asked for; 1 if a case broke or letters were not handled as they should."""
    arguments = _arguments()
    if arguments.name == "profile":
        importlib.import_module("benchmarks.profile").show(arguments.count)
        return 0
    if not arguments.quick and os.getloadavg()[0] > 0.5:
        print(f"careful: something else runs on this machine (load {os.getloadavg()[0]:.1f})", file=sys.stderr)
    names = [arguments.name] if arguments.name else NAMES
    return max(_run(name, arguments.part, quick=arguments.quick) for name in names)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure redrive beside its peers.")
    parser.add_argument("name", nargs="?", choices=(*NAMES, "profile"), help="all of them if absent")
    parser.add_argument("--quick", action="store_true", help="one run, small sizes, within a minute; not to be quoted")
    parser.add_argument("--part", help="only this part of a benchmark that comes in parts")
    parser.add_argument("--count", type=int, default=50_000, help="letters that `profile` drains")
    return parser.parse_args()


def _run(name: str, part: str | None, *, quick: bool) -> int:
    module = importlib.import_module(f"benchmarks.{name}")
    parts = getattr(module, "PARTS", ())
    if part is not None and part not in parts:
        print(f"{name} has no part {part!r}; it has {', '.join(parts) or 'none'}", file=sys.stderr)
        return 2
    try:
        for each in [part] if part else parts or [None]:
            publish(module.run(quick=quick) if each is None else module.run(quick=quick, part=each))
    except CaseFailed as failure:
        print(f"{name}: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
