"""The commands of `redrive pipeline`."""
