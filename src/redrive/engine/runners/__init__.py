"""Three ways to run a handler: on the event loop, in threads, in child processes. They know no store, no decision."""
