"""
Whether a server can be trusted with letters.

Owns the question that is asked at the opening, and what is refused or warned of. What a server keeps only in
memory is no accepted letter: `fsync = off` and `full_page_writes = off` are refused unless an operator says, on the
server, the database, the role or in the URL, `redrive.durability = unchecked`. Knows no connection.
"""

from __future__ import annotations

import logging
from typing import Any

from redrive.errors import StoreUnavailable

# By way of the view, which leaves out what the role may not see; current_setting() would raise.
ASKED = """
SELECT pg_is_in_recovery() AS replica, current_setting('transaction_read_only') AS read_only,
       current_setting('server_version_num')::integer AS number,
       (SELECT setting FROM pg_settings WHERE name = 'fsync') AS fsync,
       (SELECT setting FROM pg_settings WHERE name = 'full_page_writes') AS full_page_writes,
       current_setting('redrive.durability', true) AS durability
"""
_FORGETFUL = (180_000, 180_001)  # where an UPDATE … FROM leaves out rows for which it had to wait
_DISK = {
    "fsync": "letters that were accepted do not survive a power cut",
    "full_page_writes": "a power cut may leave half-written pages, and letters that were accepted are lost with them",
}
_SAFE_ANYWAY = "; on storage that never leaves half a page (ZFS, Aurora) this may be left as it is"
_log = logging.getLogger("redrive.stores.postgres")


def judge(server: Any) -> None:
    """Raise StoreUnavailable for a server that cannot keep letters; warn of what is only suspect."""
    if server["replica"]:
        raise StoreUnavailable(
            "cannot keep letters on a read replica: it refuses writes; point the URL at the primary "
            "(several hosts may be named: add ?target_session_attrs=read-write)"
        )
    if server["read_only"] == "on":
        raise StoreUnavailable(
            "cannot keep letters on a server that is read-only; set default_transaction_read_only to off, "
            "or point the URL at a server that takes writes"
        )
    for setting, loss in _DISK.items():
        _judge_disk(setting, server[setting], loss, accepted=server["durability"] == "unchecked")
    if server["number"] in _FORGETFUL:
        _log.warning(
            "PostgreSQL 18.0 and 18.1 overlook rows that two transactions change at once: outcomes may be refused, "
            "and letters run twice; update the server to 18.2 or later"
        )


def _judge_disk(setting: str, value: str | None, loss: str, *, accepted: bool) -> None:
    if value == "on":
        return
    if value is None:
        _log.warning("cannot see whether %s is on, because this user may not read it: if it is off, %s", setting, loss)
    elif accepted:
        _log.warning("%s is off on this server: %s", setting, loss)
    else:
        raise StoreUnavailable(
            f"cannot keep letters on this server: {setting} is off, so {loss}; turn it on, or, if you accept that, "
            "set redrive.durability = 'unchecked' on the server, the database or the role, or add "
            f"?redrive.durability=unchecked to the URL{_SAFE_ANYWAY if setting == 'full_page_writes' else ''}"
        )
