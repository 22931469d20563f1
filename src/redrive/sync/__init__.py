"""The application for code that cannot await: `calls` makes the calls, `faces` has their types."""

from redrive.sync.calls import Sync
from redrive.sync.faces import SyncDesk, SyncRedrive

__all__ = ["Sync", "SyncDesk", "SyncRedrive"]
