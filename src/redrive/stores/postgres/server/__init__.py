"""The server: its connections, transactions and clocks, and calls that survive lost answers. Knows no letters."""
