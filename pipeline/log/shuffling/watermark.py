"""The watermark in a new epoch."""

from __future__ import annotations

import uuid

from pipeline.postgres.connections import Connection

_RESTART_WATERMARK = """\
insert into pipeline.shuffle_progress (source_id, epoch) values (%(source)s, %(epoch)s)
on conflict (source_id) do update
set epoch = excluded.epoch, commit_lsn = 0, committed_at = null, updated_at = clock_timestamp()
"""
"""A new epoch begins; none of its transactions is moved yet."""


def restart(connection: Connection, source: uuid.UUID, epoch: int) -> None:
    """The next transactions are of this epoch, whose LSNs begin anew. The log must have all of the epoch before."""
    connection.execute(_RESTART_WATERMARK, {"source": source, "epoch": epoch})
