"""Webhooks in: bytes off the wire, checked, kept as a letter and answered. Owns the HTTP side of the inbox."""
