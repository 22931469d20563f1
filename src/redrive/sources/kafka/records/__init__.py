"""Records and what became of them, as plain values. Pure: no client, no clock."""
