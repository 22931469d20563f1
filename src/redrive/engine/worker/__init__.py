"""A worker: claims letters, hands them to runners, settles what came of them. Every rule it follows is in `core`."""
