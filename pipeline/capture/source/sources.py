"""The source: one row of `pipeline.sources`, stored at the first start, and its epochs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from pipeline.errors import ConfigError
from pipeline.postgres import migrations, queries, role_locks
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

PUBLISHING_SECONDS = 30.0
"""How long to wait while another session changes publications, which takes it a few seconds at most."""
_PUBLISHING, _PUBLISHING_THERE = "publications", "publications at the source"
"""Two lock names, because both may be in the same database."""
_ADD_PUBLICATION = "update pipeline.sources set publications = publications || %(publication)s where id = %(id)s"
"""A publication that we made, by name and oid."""
_BEGIN_READING = "update pipeline.sources set reads_tables = true where id = %(source)s"
"""Tables that join from now on are read."""
_CARRIED_TRANSACTIONS = """\
select commit_lsn, (extract(epoch from committed_at - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint
from pipeline.carried_transactions
where source_id = %(source)s and commit_lsn >= %(from_lsn)s
"""
"""Transactions of the epoch before, with their commit time in µs since 2000."""
_CARRY_TRANSACTION = """\
insert into pipeline.carried_transactions (source_id, commit_lsn, committed_at)
values (%(source)s, %(commit_lsn)s, timestamptz '2000-01-01 00:00:00+00' + %(committed_at)s * interval '1 microsecond')
"""
"""A transaction that is in the log, and that the slot may replay."""
_EPOCH_BEGINS = "select from_lsn from pipeline.epochs where source_id = %(source)s and epoch = %(epoch)s"
"""Where an epoch begins."""
_EPOCH_CLUSTERS = "select epoch, system_identifier from pipeline.epochs where source_id = %(source)s"
"""In which cluster the source was in each epoch."""
_EPOCH_GAP = """\
select previous_position, from_lsn from pipeline.epochs
where source_id = %(source)s and epoch = %(epoch)s and previous_position is not null
"""
"""What lies between an epoch and the one before it."""
_EPOCHS = "select epoch, after_seqs from pipeline.epochs where source_id = %(source)s order by epoch desc"
"""The epochs of a source, newest first."""
_FORGET_CARRIED = "delete from pipeline.carried_transactions where source_id = %(source)s and commit_lsn < %(from_lsn)s"
"""Delete the transactions that the slot no longer sends."""
_READS_FROM = "select case when reads_tables is false then reads_from end from pipeline.sources where id = %(source)s"
"""Of the tables that are captured now only those that joined after it are read; null: all."""


@dataclass(frozen=True)
class ReplicationSource:
    """A source as stored. `publications`: those that we made, name to oid. `timeline`: None until known.

    `published`: what the publications in use published at the last check, as `publication_ledger.to_json` writes it.
    `unmatched`: why the settings match none of its tables; None where they do.
    """

    id: uuid.UUID
    epoch: int
    system_identifier: str
    database_name: str
    slot: str
    publications: dict[str, int] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    timeline: int | None = None
    published: dict[str, Any] = field(default_factory=dict)
    unmatched: str | None = None


@dataclass(frozen=True)
class SourceEpoch:
    """One history of a source. LSNs can be compared only within it.

    `previous_position` and `after_seq`: how far the epoch before it was staged, and the last seq of that in the default
    log; `after_seqs`: its last seq in each events table.
    """

    source: uuid.UUID
    epoch: int
    system_identifier: str
    timeline: int | None
    from_lsn: int
    previous_position: int | None
    after_seq: int
    reason: str
    after_seqs: dict[str, int] = field(default_factory=dict)


def find(connection: Connection, source_id: uuid.UUID | None) -> ReplicationSource | None:
    """The source with this id, or the only one; None when none is stored yet.

    Raises ConfigError when several are stored and no id says which.
    """
    found = queries.rows(connection, ReplicationSource, statement("capture.source", "find_sources"), {"id": source_id})
    if len(found) > 1:
        ids = ", ".join(str(source.id) for source in found)
        raise ConfigError(f"the pipeline database has {len(found)} sources; set PIPELINE_SOURCE_ID to one of {ids}")
    return found[0] if found else None


def find_in_any(connection: Connection, source_id: uuid.UUID | None) -> ReplicationSource | None:
    """As `find`; None also for a pipeline database without our schema."""
    return find(connection, source_id) if migrations.current_revision(connection) else None


def add(connection: Connection, source: ReplicationSource) -> None:
    """Store a new source."""
    connection.execute(statement("capture.source", "add_source"), _values(source))


def change(connection: Connection, source: ReplicationSource) -> None:
    """Replace what is stored of a source: everything but its id may be new."""
    connection.execute(statement("capture.source", "change_source"), _values(source))


def _values(source: ReplicationSource) -> dict[str, Any]:
    return {name: Jsonb(value) if isinstance(value, dict) else value for name, value in vars(source).items()}


def add_publication(connection: Connection, source_id: uuid.UUID, name: str, oid: int) -> None:
    """Remember that we made this publication: we never change any other."""
    connection.execute(_ADD_PUBLICATION, {"id": source_id, "publication": Jsonb({name: oid})})


def store_timeline(connection: Connection, source_id: uuid.UUID, timeline: int) -> None:
    """Store the timeline that the source is in now."""
    connection.execute("update pipeline.sources set timeline = %s where id = %s", (timeline, source_id))


def store_published(connection: Connection, source_id: uuid.UUID, published: dict[str, Any]) -> None:
    """Store what is published. Only inside of `publishing`."""
    connection.execute("update pipeline.sources set published = %s where id = %s", (Jsonb(published), source_id))


def store_unmatched(connection: Connection, source_id: uuid.UUID, why: str | None) -> None:
    """Store why nothing can be captured, or None where something can."""
    connection.execute("update pipeline.sources set unmatched = %s where id = %s", (why, source_id))


@contextmanager
def publishing(connection: Connection, source: Connection) -> Iterator[None]:
    """Held while publications and what is stored of them change, so that nothing compares them in between.

    Held in both databases: after a holder has died, or has lost the lock in the pipeline database, its statement may
    still run at the source. A frozen holder loses it, as a role does. Raises DatabaseUnavailableError after a long wait
    for it.
    """
    with (
        role_locks.held(connection, _PUBLISHING, PUBLISHING_SECONDS),
        role_locks.held(source, _PUBLISHING_THERE, PUBLISHING_SECONDS),
    ):
        yield


def begin_epoch(connection: Connection, epoch: SourceEpoch) -> None:
    """Record where an epoch begins, and why; an existing record is kept."""
    connection.execute(
        statement("capture.source", "begin_epoch"), {**vars(epoch), "after_seqs": Jsonb(epoch.after_seqs)}
    )


def epochs(connection: Connection, source_id: uuid.UUID) -> list[tuple[int, dict[str, int]]]:
    """Number and `after_seqs` of every epoch, the newest first."""
    return connection.execute(_EPOCHS, {"source": source_id}).fetchall()


def epoch_begins(connection: Connection, source_id: uuid.UUID, epoch: int) -> int | None:
    """The LSN from which this epoch streams; None before it is known."""
    values = {"source": source_id, "epoch": epoch}
    found: int | None = queries.value(connection, _EPOCH_BEGINS, values)
    return found


def read_no_tables(connection: Connection, source_id: uuid.UUID) -> None:
    """Rows of the tables that are captured by now are not read; those of tables that join later are."""
    connection.execute(
        "update pipeline.sources set reads_tables = false, reads_from = now() where id = %s", (source_id,)
    )


def reads_from(connection: Connection, source_id: uuid.UUID) -> datetime | None:
    """None when all tables that join are read; else, of those that are captured now, only those that joined later."""
    found: datetime | None = queries.value(connection, _READS_FROM, {"source": source_id})
    return found


def read_tables(connection: Connection, source_id: uuid.UUID) -> None:
    """Tables that join from now on are read."""
    connection.execute(_BEGIN_READING, {"source": source_id})


def request_reread(connection: Connection, source_id: uuid.UUID, epoch: int | None) -> None:
    """What is captured when this epoch begins is compared with the log; None: it is taken care of."""
    connection.execute("update pipeline.sources set rereads_epoch = %s where id = %s", (epoch, source_id))


def requested_reread(connection: Connection, source_id: uuid.UUID) -> int | None:
    """The epoch given to `request_reread` that is still to be taken care of."""
    query = "select rereads_epoch from pipeline.sources where id = %s"
    found: int | None = queries.value(connection, query, (source_id,))
    return found


def epoch_gap(connection: Connection, source_id: uuid.UUID, epoch: int) -> tuple[int, int] | None:
    """Where the epoch before this one ended and where it begins, LSNs; None where nothing came before it."""
    values = {"source": source_id, "epoch": epoch}
    return connection.execute(_EPOCH_GAP, values).fetchone()


def clusters(connection: Connection, source_id: uuid.UUID) -> dict[int, str]:
    """The system identifier of the source in each epoch."""
    return dict(connection.execute(_EPOCH_CLUSTERS, {"source": source_id}).fetchall())


def carry_transactions(connection: Connection, source_id: uuid.UUID, transactions: Iterable[tuple[int, int]]) -> None:
    """Store transactions of earlier epochs that are in the log: commit_lsn and commit time in µs since 2000."""
    connection.execute("delete from pipeline.carried_transactions where source_id = %s", (source_id,))
    values = [
        {"source": source_id, "commit_lsn": commit_lsn, "committed_at": committed_at}
        for commit_lsn, committed_at in transactions
    ]
    with connection.cursor() as cursor:
        cursor.executemany(_CARRY_TRANSACTION, values)


def carried_transactions(connection: Connection, source_id: uuid.UUID, from_lsn: int) -> frozenset[tuple[int, int]]:
    """Those of them that a slot confirmed up to `from_lsn` may replay; deletes the others."""
    values = {"source": source_id, "from_lsn": from_lsn}
    connection.execute(_FORGET_CARRIED, values)
    return frozenset(connection.execute(_CARRIED_TRANSACTIONS, values).fetchall())
