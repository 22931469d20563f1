"""The engine of a pipeline: a document's way from a node's input topic to the next, the end, the DLQ or quarantine."""
