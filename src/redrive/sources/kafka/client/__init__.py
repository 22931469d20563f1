"""What librdkafka is told, and what its answers mean."""
