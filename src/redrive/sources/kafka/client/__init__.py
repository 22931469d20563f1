"""The settings and the errors of the librdkafka clients."""
