"""The stored source: one row of `pipeline.sources`, added at the first start, and the source's epochs."""

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
"""Seconds to wait while another session changes publications, which takes that session a few seconds at most."""
_PUBLISHING, _PUBLISHING_THERE = "publications", "publications at the source"
"""Two lock names, because both locks may be in the same database."""
_ADD_PUBLICATION = "update pipeline.sources set publications = publications || %(publication)s where id = %(id)s"
"""Store a publication that we made, by name and oid."""
_BEGIN_READING = "update pipeline.sources set reads_tables = true where id = %(source)s"
"""Read tables that join from now on."""
_CARRIED_TRANSACTIONS = """\
select commit_lsn, (extract(epoch from committed_at - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint
from pipeline.carried_transactions
where source_id = %(source)s and commit_lsn >= %(from_lsn)s
"""
"""Transactions of earlier epochs, with their commit times in µs since 2000."""
_CARRY_TRANSACTION = """\
insert into pipeline.carried_transactions (source_id, commit_lsn, committed_at)
values (%(source)s, %(commit_lsn)s, timestamptz '2000-01-01 00:00:00+00' + %(committed_at)s * interval '1 microsecond')
"""
"""Store a transaction that is in the log, and that the slot may replay."""
_EPOCH_BEGINS = "select from_lsn from pipeline.epochs where source_id = %(source)s and epoch = %(epoch)s"
"""The LSN at which an epoch begins."""
_EPOCH_CLUSTERS = "select epoch, system_identifier from pipeline.epochs where source_id = %(source)s"
"""The cluster in which the source was in each epoch."""
_EPOCH_GAP = """\
select previous_position, from_lsn from pipeline.epochs
where source_id = %(source)s and epoch = %(epoch)s and previous_position is not null
"""
"""The end of the epoch before, and the beginning of this one; no row if nothing came before it."""
_EPOCHS = "select epoch, after_seqs from pipeline.epochs where source_id = %(source)s order by epoch desc"
"""The epochs of a source, newest first."""
_FORGET_CARRIED = "delete from pipeline.carried_transactions where source_id = %(source)s and commit_lsn < %(from_lsn)s"
"""Delete the transactions that the slot no longer sends."""
_READS_FROM = "select case when reads_tables is false then reads_from end from pipeline.sources where id = %(source)s"
"""The time after which a captured table must have joined, so that its rows are read; null: all are read."""


@dataclass(frozen=True)
class ReplicationSource:
    """A source as stored. `publications`: those that we made, name to oid. `timeline`: None until known.

    `published`: what the publications in use published at the last check, as `publication_ledger.to_json` returns it.
    `unmatched`: why the settings match none of its tables; None if they match one.
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
    """One history of a source. LSNs can be compared only within an epoch.

    `previous_position`: how far the epoch before was staged; `after_seq`: its last seq in the default log;
    `after_seqs`: its last seq in each events table.
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
    """Return the source with this id, or the only source; None if none is stored yet.

    Raises ConfigError if several are stored and no id chooses one.
    """
    found = _find(connection, source_id)
    if len(found) > 1:
        ids = ", ".join(str(source.id) for source in found)
        raise ConfigError(f"the pipeline database has {len(found)} sources; set PIPELINE_SOURCE_ID to one of {ids}")
    return found[0] if found else None


def find_in_any(connection: Connection, source_id: uuid.UUID | None) -> ReplicationSource | None:
    """Return the source as `find` does; None also if the pipeline database lacks our schema."""
    return find(connection, source_id) if migrations.current_revision(connection) else None


def find_all_in_any(connection: Connection) -> list[ReplicationSource]:
    """Return all stored sources; none also if the pipeline database lacks our schema."""
    return _find(connection, None) if migrations.current_revision(connection) else []


def _find(connection: Connection, source_id: uuid.UUID | None) -> list[ReplicationSource]:
    return queries.rows(connection, ReplicationSource, statement("capture.source", "find_sources"), {"id": source_id})


def add(connection: Connection, source: ReplicationSource) -> None:
    """Store a new source."""
    connection.execute(statement("capture.source", "add_source"), _values(source))


def change(connection: Connection, source: ReplicationSource) -> None:
    """Replace what is stored of a source: everything but its id may be new."""
    connection.execute(statement("capture.source", "change_source"), _values(source))


def _values(source: ReplicationSource) -> dict[str, Any]:
    return {name: Jsonb(value) if isinstance(value, dict) else value for name, value in vars(source).items()}


def add_publication(connection: Connection, source_id: uuid.UUID, name: str, oid: int) -> None:
    """Store that we made this publication: we never change any other."""
    connection.execute(_ADD_PUBLICATION, {"id": source_id, "publication": Jsonb({name: oid})})


def store_timeline(connection: Connection, source_id: uuid.UUID, timeline: int) -> None:
    """Store the timeline that the source is in now."""
    connection.execute("update pipeline.sources set timeline = %s where id = %s", (timeline, source_id))


def store_published(connection: Connection, source_id: uuid.UUID, published: dict[str, Any]) -> None:
    """Store what is published. Only inside of `publishing`."""
    connection.execute("update pipeline.sources set published = %s where id = %s", (Jsonb(published), source_id))


def store_unmatched(connection: Connection, source_id: uuid.UUID, why: str | None) -> None:
    """Store why nothing can be captured; None if something can."""
    connection.execute("update pipeline.sources set unmatched = %s where id = %s", (why, source_id))


@contextmanager
def publishing(connection: Connection, source: Connection) -> Iterator[None]:
    """Lock publications and their stored state while they change, so that no session compares them in between.

    The lock is held in both databases: after a holder has died, or has lost the lock in the pipeline database, its
    statement may still run at the source. A frozen holder loses the lock, as a role does. Raises
    DatabaseUnavailableError after PUBLISHING_SECONDS.
    """
    with (
        role_locks.hold_lock(connection, _PUBLISHING, PUBLISHING_SECONDS),
        role_locks.hold_lock(source, _PUBLISHING_THERE, PUBLISHING_SECONDS),
    ):
        yield


def begin_epoch(connection: Connection, epoch: SourceEpoch) -> None:
    """Record where an epoch begins, and why; an existing record is kept."""
    connection.execute(
        statement("capture.source", "begin_epoch"), {**vars(epoch), "after_seqs": Jsonb(epoch.after_seqs)}
    )


def epochs(connection: Connection, source_id: uuid.UUID) -> list[tuple[int, dict[str, int]]]:
    """Return number and `after_seqs` of every epoch, the newest first."""
    return connection.execute(_EPOCHS, {"source": source_id}).fetchall()


def epoch_begins(connection: Connection, source_id: uuid.UUID, epoch: int) -> int | None:
    """Return the LSN from which this epoch streams; None before it is known."""
    values = {"source": source_id, "epoch": epoch}
    found: int | None = queries.value(connection, _EPOCH_BEGINS, values)
    return found


def read_no_tables(connection: Connection, source_id: uuid.UUID) -> None:
    """Do not read the tables that are captured by now; tables that join later are read."""
    connection.execute(
        "update pipeline.sources set reads_tables = false, reads_from = now() where id = %s", (source_id,)
    )


def reads_from(connection: Connection, source_id: uuid.UUID) -> datetime | None:
    """Return the time after which captured tables must have joined to be read; None if all are read."""
    found: datetime | None = queries.value(connection, _READS_FROM, {"source": source_id})
    return found


def read_tables(connection: Connection, source_id: uuid.UUID) -> None:
    """Read tables that join from now on."""
    connection.execute(_BEGIN_READING, {"source": source_id})


def request_reread(connection: Connection, source_id: uuid.UUID, epoch: int | None) -> None:
    """Request that the tables captured when this epoch begins are compared with the log; None: that is done."""
    connection.execute("update pipeline.sources set rereads_epoch = %s where id = %s", (epoch, source_id))


def requested_reread(connection: Connection, source_id: uuid.UUID) -> int | None:
    """Return the epoch given to `request_reread` whose tables must still be compared."""
    query = "select rereads_epoch from pipeline.sources where id = %s"
    found: int | None = queries.value(connection, query, (source_id,))
    return found


def epoch_gap(connection: Connection, source_id: uuid.UUID, epoch: int) -> tuple[int, int] | None:
    """Return the LSNs where the epoch before this one ended and where this one begins; None if nothing came before
    it.
    """
    values = {"source": source_id, "epoch": epoch}
    return connection.execute(_EPOCH_GAP, values).fetchone()


def clusters(connection: Connection, source_id: uuid.UUID) -> dict[int, str]:
    """Return the system identifier of the source in each epoch."""
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
    """Return the stored transactions that a slot confirmed up to `from_lsn` may replay; deletes the others."""
    values = {"source": source_id, "from_lsn": from_lsn}
    connection.execute(_FORGET_CARRIED, values)
    return frozenset(connection.execute(_CARRIED_TRANSACTIONS, values).fetchall())
