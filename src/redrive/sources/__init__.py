"""Where letters come from: one room a source, each with its promise to the other side."""
