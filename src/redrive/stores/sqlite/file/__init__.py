"""The database file: its connections, locks and identity, and the one thread that writes. Knows no letters."""
