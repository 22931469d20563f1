"""What operators do with a pipeline: look at its lanes, send documents back, pause nodes, follow a document."""
