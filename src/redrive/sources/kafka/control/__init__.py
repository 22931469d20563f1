"""The control thread: polls, tracks offsets, commits, publishes dead letters. Runs no worker."""
