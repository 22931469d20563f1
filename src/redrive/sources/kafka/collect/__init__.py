"""Dead letters of topics as letters of the store, and letters as Kafka messages."""
