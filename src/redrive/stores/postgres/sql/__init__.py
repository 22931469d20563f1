"""The SQL of the PostgreSQL store, as files, and the code that reads and applies them."""
