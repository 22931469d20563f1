"""Dead-letter topics: what is written to them, and how it gets there."""
