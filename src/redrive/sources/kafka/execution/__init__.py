"""The event loop's side: order, tries and engines that run the worker. Knows no Kafka client."""
