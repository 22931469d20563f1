"""The way of a document: a step at each node, its stream and bodies, and where it goes next or when it fails."""
