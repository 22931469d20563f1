"""Running letters: the three execution engines, the processor on top of them, and `retry` without a store."""
