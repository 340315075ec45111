"""Orphans: copies of the slot that no part of a backlog needs, left at the source by a killed server."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection

import psycopg

from pipeline.capture.catchup import plan_reader
from pipeline.capture.source import slots, sources
from pipeline.capture.source.slots import Slot
from pipeline.errors import ReplicationError, SlotMissingError
from pipeline.postgres import connections, role_locks
from pipeline.postgres.connections import Connection

logger = logging.getLogger(__name__)


def find_orphans(source: Connection, anchor: str, working: Collection[int] = ()) -> list[Slot]:
    """Return this database's slots that are named as copies of `anchor`, except those of the `working` workers."""
    known = {slots.part_name(anchor, worker) for worker in working}
    return [
        slot
        for slot in slots.find_parts(source, anchor)
        if slot.database == source.info.dbname and slot.plugin == "pgoutput" and slot.name not in known
    ]


def find_working(pipeline: Connection, source_id: uuid.UUID | None) -> set[int]:
    """Return the workers whose slots a running server uses, according to the pipeline database."""
    stored = sources.find_in_any(pipeline, source_id)
    if stored is None or role_locks.server_of(pipeline, "replication") is None:
        return set()
    return {part.worker for part in plan_reader.read_plan(pipeline, stored.id) if part.worker}


def remove_orphans(source: Connection, anchor: str, working: Collection[int] = ()) -> list[str]:
    """Drop the orphans and end their readers; returns the names of the dropped slots.

    Only the holder of the replication role may call this. A slot that cannot be dropped stays, with a warning: a
    catch-up works without it.
    """
    removed = []
    for slot in find_orphans(source, anchor, working):
        try:
            _remove(source, slot)
        except (ReplicationError, psycopg.errors.InsufficientPrivilege) as error:
            why = connections.one_line(error) if isinstance(error, psycopg.Error) else str(error)
            logger.warning('slot "%s" is left over: %s', slot.name, why, extra={"action": "catchup.orphan_kept"})
            continue
        logger.info('slot "%s" was left over, and is removed', slot.name, extra={"action": "catchup.orphan_removed"})
        removed.append(slot.name)
    return removed


def _remove(source: Connection, slot: Slot) -> None:
    """Drop the slot; a temporary one disappears with its session."""
    slots.end_walsender(source, slot)
    try:
        slots.drop(source, slot.name)
    except SlotMissingError:
        return
