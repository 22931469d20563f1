"""The commands that run until they are stopped: the engine of a graph, and the collector of its dead documents."""
