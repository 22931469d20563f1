"""The DLQ and quarantine of a node, for operators: which letters wait, and how they are sent away once."""
