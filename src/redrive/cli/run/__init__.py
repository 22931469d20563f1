"""Commands that run and keep up an installation."""
