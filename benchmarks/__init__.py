"""redrive beside its peers: one file per question, run by `python -m benchmarks`."""
