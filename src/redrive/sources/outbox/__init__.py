"""
The outbox: letters in a transaction of the user's own.

`app.outbox(connection).enqueue(…)` keeps a letter if and only if the transaction commits;
`app.once(letter, connection)` lets an effect happen once; a relay carries letters on to a broker.
"""

from redrive.sources.outbox.http_relay import HttpRelay
from redrive.sources.outbox.relay import Relay

__all__ = ["HttpRelay", "Relay"]
