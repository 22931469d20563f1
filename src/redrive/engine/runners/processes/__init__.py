"""Handlers in child processes: the pool, the children, and the pipe between them."""
