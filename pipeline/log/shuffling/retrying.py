"""Retry dead letters at a user's request: the shuffler appends them at the head of the log."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Sequence

import psycopg
from psycopg import sql

from pipeline.log import dead_letters
from pipeline.log import table as log
from pipeline.log.dead_letters import RequestedRetry
from pipeline.log.shuffling.targets import TargetTable, TargetTables
from pipeline.log.shuffling.transfer import require_all, require_no_rule
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)

AT_ONCE = 500
"""The most dead letters in one transaction."""
_LOCK_LOG = "select coalesce(last_seq, 0) from pipeline.shuffle_progress where source_id = %(source)s for update"
"""Read the newest seq, and lock it against other writers."""


def retry(connection: Connection, source: uuid.UUID, targets: TargetTables) -> bool:
    """Write one batch of requested retries; returns True if any were requested. Their state commits with the events."""
    if connection.execute(statement("log.shuffling", "retry_wanted"), {"source": source}).fetchone() is None:
        return False
    try:
        with connection.transaction():
            wanted = dead_letters.claim_retries(connection, source, AT_ONCE)
            connection.execute(_LOCK_LOG, {"source": source})
            if connection.execute(statement("log.shuffling", "retry_wanted"), {"source": source}).fetchone() is None:
                wanted = []  # a backlog has reserved the next seqs
                raise psycopg.Rollback
            targets.begin()
            written = [
                _append(connection, source, name, targets, [each for each in wanted if each.events_table == name])
                for name in dict.fromkeys(each.events_table for each in wanted)
            ]
            _finish(connection, source, targets.default, written)
    finally:
        targets.forget()  # a savepoint may have been rolled back
    return bool(wanted)


def _append(
    connection: Connection, source: uuid.UUID, name: str, targets: TargetTables, letters: list[RequestedRetry]
) -> TargetTable | None:
    """Write the dead letters of one events table; returns None if nothing can be written to it."""
    try:
        with connection.transaction():
            target = targets.named(name)
            target.reserve(len(letters))
            outdated = _outdated(connection, target, letters)
    except psycopg.Error as error:
        if not connections.is_poison(error):
            raise
        for letter in letters:
            dead_letters.mark_failed(connection, letter.id, connections.cause_of(error), error.sqlstate or "")
        return None
    for letter in letters:
        try:
            with connection.transaction():
                _write(connection, source, target, letter, outdated=letter.id in outdated)
                dead_letters.mark_retried(connection, letter.id, target.seq)
        except psycopg.Error as error:
            if not connections.is_poison(error):
                raise
            dead_letters.mark_failed(connection, letter.id, connections.cause_of(error), error.sqlstate or "")
        else:
            target.add(1)
    counted = {"action": "shuffle.retried", "events": target.added, "failed": len(letters) - target.added}
    logger.info("dead letters written again to %s", name, extra=counted)
    return target


def _write(
    connection: Connection, source: uuid.UUID, target: TargetTable, letter: RequestedRetry, *, outdated: bool
) -> None:
    marks = {"retried": letter.id, **({"outdated": True} if outdated else {})}
    rows = sql.SQL("({})").format(sql.SQL(statement("log.shuffling", "select_letter")))
    query = sql.SQL(statement("log.shuffling", "move_segment")).format(events=target.table.identifier, rows=rows)
    values = {"source": source, "epoch": letter.epoch, "id": letter.id, "metadata": json.dumps(marks)}
    written = connection.execute(query, {**values, "seq": target.seq})
    table = {"table": target.table.identifier.as_string(connection)}
    require_no_rule(target.table, connection.execute(statement("log.shuffling", "insert_rules"), table).fetchall())
    require_all(target.table, written.rowcount, 1)
    # Unchanged values are not filled in: the values that are known now may differ from those at that time.
    query = sql.SQL(statement("log.shuffling", "name_unchanged")).format(events=target.table.identifier)
    connection.execute(query, {"seq": target.seq, "id": letter.id})


def _outdated(connection: Connection, target: TargetTable, letters: list[RequestedRetry]) -> set[int]:
    """Return the ids of dead letters for whose rows the log has newer changes."""
    query = sql.SQL(statement("log.shuffling", "outdated_letters")).format(events=target.table.identifier)
    values = {"ids": [letter.id for letter in letters], "table": str(target.table)}
    return {row[0] for row in connection.execute(query, values)}


def _finish(
    connection: Connection, source: uuid.UUID, default: TargetTable, written: Sequence[TargetTable | None]
) -> None:
    tables = [target for target in written if target and target.added]
    for target in tables:
        log.set_seq(connection, target.table, target.seq - 1)
        log.notify(connection, target.table, target.seq - 1)
    values = {
        "source": source,
        "newest": default.seq - 1 if default.added else None,
        "names": [str(target.table) for target in tables],
        "seqs": [target.seq - 1 for target in tables],
        "added": [target.added for target in tables],
    }
    connection.execute(statement("log.shuffling", "count_retried"), values)
