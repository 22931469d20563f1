"""The graph of a pipeline: what it holds, how it is read, checked and drawn."""
