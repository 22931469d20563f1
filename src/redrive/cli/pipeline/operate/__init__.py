"""The commands that ask a graph at work, and act on its nodes and their dead letters."""
