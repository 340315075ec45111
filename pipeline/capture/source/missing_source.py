"""Explains why no source is known yet. If a server already runs, a user must not start a second one."""

from __future__ import annotations

from pipeline.postgres import migrations, role_locks
from pipeline.postgres.connections import Connection

NO_SERVER = "no source has been replicated from yet; start `pipeline serve` first"
"""The explanation if no server runs."""
_ROLE = "replication"


def explain_missing_source(pipeline: Connection) -> str:
    """Return why no source is known, and the remedy. The pipeline database may never have been migrated."""
    role = role_locks.states(pipeline).get(_ROLE) if migrations.current_revision(pipeline) is not None else None
    if role is not None and role.held:
        server, reason = f"the server {role.server}", f": {role.reason}" if role.reason else ""
    elif role_locks.server_starts(pipeline, _ROLE):
        server, reason = "a server", ": it has just started"
    else:
        return NO_SERVER
    return f"{server} runs, and does not replicate yet{reason}; try again when `pipeline status` says that it does"
