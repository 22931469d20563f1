"""Commands that change letters or queues."""
