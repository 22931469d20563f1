"""What operators ask of the store and do with it: find, count and group letters, act on them, copy them."""
