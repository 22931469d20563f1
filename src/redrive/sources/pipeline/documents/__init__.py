"""Bodies that are too large to travel: where they are kept, and when they may go."""
