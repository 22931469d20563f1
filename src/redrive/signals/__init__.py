"""Facts out: log lines, counters, alerts. A broken exporter never stops a letter."""
