"""Which offsets are safe to commit, and the note beside them. Pure: no client, no clock."""
