"""Which offsets are safe to commit, and the metadata to commit with them. Pure: no client, no clock."""
