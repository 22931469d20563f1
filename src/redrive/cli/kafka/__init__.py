"""`redrive kafka`: the consumer, its dead-letter topics, replays and the collector."""
