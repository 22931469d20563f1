"""Real servers for tests, benchmarks and `make services`: started as children of this process, and gone with it."""
