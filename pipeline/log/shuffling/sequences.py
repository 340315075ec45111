"""Repair sequences that are behind their events: a copy or dump may lack them, and any owner may set one."""

from __future__ import annotations

import logging

from psycopg import sql

from pipeline.log import table as log
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)


def repair(connection: Connection, table: EventsTable, seq: int) -> int:
    """Return `seq` if no event has had it or a later one; otherwise set the sequence and return the next free seq.

    A reader of `seq > last` would never see an event that was added at or below the newest seq. Only the one shuffler
    may call this.
    """
    query = sql.SQL(statement("log.shuffling", "newest_seq")).format(events=table.identifier)
    newest = int(queries.value(connection, query, {"name": str(table)}, default=0))
    if seq > newest:
        return seq
    log.set_seq(connection, table, newest)
    fields = {"action": "shuffle.sequence_raised", "events_table": str(table), "seq": seq, "newest_seq": newest}
    logger.warning("the sequence of %s was behind its newest event, and was set to it", table, extra=fields)
    return newest + 1
