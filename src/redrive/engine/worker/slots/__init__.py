"""Which letters this process takes, and how many: slots per queue and kind, and what is claimed ahead of them."""
