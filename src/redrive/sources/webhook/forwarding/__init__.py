"""Events sent on to HTTP services, for handlers in any language. Owns the request and where it may go."""
