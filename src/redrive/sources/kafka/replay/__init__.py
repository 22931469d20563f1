"""Commands on dead-letter topics: read them, and send dead letters back to where they came from."""
