"""`python -m tests.servers`: run the servers until interrupted, and say where they are."""

from __future__ import annotations

import contextlib
import signal

from tests.servers import postgres


def main() -> None:
    with contextlib.ExitStack() as servers:
        for version in postgres.FOLDERS:
            try:
                print(f"PostgreSQL {version}: {servers.enter_context(postgres.running(version)).url}", flush=True)
            except postgres.Missing as missing:
                print(f"PostgreSQL {version}: {missing}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
