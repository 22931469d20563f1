"""Signatures of webhooks: pure functions of raw bytes. Owns no clock, no secret of its own and no request object."""
