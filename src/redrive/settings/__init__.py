"""
Settings: `redrive.toml` and `REDRIVE_*`, read once.

Arguments win over the environment, the environment wins over the file. No other room reads the environment, and rooms
get values, never the source of a value.
"""

from redrive.settings.loading import load, load_kafka
from redrive.settings.secrets import masked
from redrive.settings.values import FILE, PREFIX, Settings

__all__ = ["FILE", "PREFIX", "Settings", "load", "load_kafka", "masked"]
