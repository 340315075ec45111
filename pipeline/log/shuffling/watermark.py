"""Restart the watermark in a new epoch."""

from __future__ import annotations

import uuid

from pipeline.postgres.connections import Connection

_RESTART_WATERMARK = """\
insert into pipeline.shuffle_progress (source_id, epoch) values (%(source)s, %(epoch)s)
on conflict (source_id) do update
set epoch = excluded.epoch, commit_lsn = 0, committed_at = null, updated_at = clock_timestamp()
"""
"""Begin a new epoch, of which no transaction is moved yet."""


def restart(connection: Connection, source: uuid.UUID, epoch: int) -> None:
    """Begin an epoch, whose LSNs start again. The log must have everything of the previous epoch."""
    connection.execute(_RESTART_WATERMARK, {"source": source, "epoch": epoch})
