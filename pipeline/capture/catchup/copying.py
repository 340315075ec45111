"""Makes, advances and drops temporary copies of the slot.

A copy is made and advanced on the connection that then reads it, and is dropped when that connection ends.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import psycopg

from pipeline.capture.replication.stream import ReplicationStream
from pipeline.capture.source import slots
from pipeline.errors import ReplicationError, SlotMissingError
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn

logger = logging.getLogger(__name__)
_ADVANCE_SLOT = "select pg_catalog.pg_replication_slot_advance(%(slot)s::name, %(target)s::pg_lsn)"
"""Confirm everything before this LSN without sending it."""
_LIMIT_WAIT = """\
select set_config('statement_timeout', '5s', true)
where coalesce(current_setting('synchronized_standby_slots', true), '') <> ''
"""
"""Limit the advance if it waits for standbys, of which one may be down."""


@dataclass(frozen=True)
class SlotCopy:
    """A temporary copy of a slot. `begins_at`: the copy sends transactions that commit at this LSN or later.

    `catalog_xmin` belongs to the slot that was copied. All earlier transactions had ended at the position that was
    confirmed for that slot.
    """

    name: str
    begins_at: int
    catalog_xmin: str


def copy_slot(stream: ReplicationStream, anchor: str, name: str, target: int) -> SlotCopy:
    """Copy slot `anchor` on the stream's connection, as a temporary slot.

    The copy sends transactions that commit at `target` or later; if the anchor is beyond `target`, all that the
    anchor would send. Copying may take long: the source reads all WAL in between. Raises a ReplicationError that says
    why the slot cannot be copied.
    """
    stream.query(f"select pg_catalog.pg_copy_logical_replication_slot('{anchor}', '{name}', true)")
    found = stream.query(statement("capture.catchup", "copied_slot").format(name=name))
    if len(found) != 2 or found[0] is None or found[1] is None:
        raise SlotMissingError(f'slot "{name}" does not exist although it was just created')
    begins_at = int(found[1])
    if target > begins_at:
        begins_at = target
        for _ in range(2):  # the first moves confirmed_flush_lsn, the second restart_lsn (postgres-facts.md 23)
            stream.query(f"select pg_catalog.pg_replication_slot_advance('{name}', '{lsn.show(target)}')")
    return SlotCopy(name, begins_at, found[0])


def remove_leftover(source: Connection, name: str) -> None:
    """End the walsender that still reads a copy with this name, and drop the copy."""
    slot = slots.find(source, name)
    if slot is None:
        return
    slots.end_walsender(source, slot)
    if slots.find(source, name) is not None:
        slots.drop(source, name)


def advance_slot(source: Connection, anchor: str, commit_lsn: int, position: int) -> None:
    """Advance the slot past WAL that is staged durably, so that the source can remove that WAL without sending it.

    No other program may read the slot. The slot stops at the last transaction with rows, at `commit_lsn`, which is
    then replayed and compared; if the slot has confirmed that transaction already, it advances to `position`. If the
    source refuses, or waits too long for a standby, the slot stays where it is until the next part is taken over. That
    only costs time later: replayed transactions are skipped.
    """
    slot = slots.find(source, anchor)
    if slot is None or slot.confirmed_lsn is None:
        return
    target = commit_lsn if commit_lsn > slot.confirmed_lsn else position
    if target <= slot.confirmed_lsn:
        return
    try:
        slots.end_walsender(source, slot)
        with source.transaction():
            source.execute(_LIMIT_WAIT)
            for _ in range(2):
                source.execute(_ADVANCE_SLOT, {"slot": anchor, "target": lsn.show(target)})
    except (ReplicationError, psycopg.DatabaseError) as error:
        if source.broken:
            raise
        why = connections.one_line(error) if isinstance(error, psycopg.Error) else str(error)
        logger.warning('slot "%s" stays behind: %s', anchor, why, extra={"action": "catchup.slot_behind"})
