"""What operators act with: single acts, plans and how their letters did, edits, copies, queues, subscriptions."""
