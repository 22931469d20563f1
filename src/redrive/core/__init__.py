"""The rules: pure values and functions. No I/O, no clock, no chance, no logging in this room."""
