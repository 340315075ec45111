"""Reads which tables of the source are captured now, and how: the partitions and the key of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pipeline.capture.source import own_tables, publication_ledger, publishable_tables
from pipeline.capture.source.publication_ledger import PublicationState
from pipeline.capture.source.publishable_tables import PublishableTable
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.postgres.connections import Connection

_UPDATES_CAPTURED = "select keyed from pipeline.snapshot_tables where source_id = %(source)s and table_oid = %(oid)s"
"""True if updates and deletes of a table were captured when the server last compared it."""
_VOID_UPTO = """\
select void_epoch, void_lsn from pipeline.snapshot_tables
where source_id = %(source)s and table_oid = %(oid)s and void_lsn is not null
"""
"""The place in the log up to which events know a table's rows by another key than now; no row if none do."""


@dataclass(frozen=True)
class CapturedTable:
    """A table that is captured now; of a partitioned table the root. `keyed`: its updates and deletes are captured,
    too.

    `relations`: the table itself, or the partitions that hold its rows. `key`: the numbers of the columns that
    identify its rows, for each kind of partition; "" without a key, None without a partition. `members`: oids of the
    memberships that name the table itself in publications of its updates; a membership that was dropped and added
    again has another oid. `covered`: the published ones of `relations`.
    """

    oid: int
    schema: str
    name: str
    keyed: bool
    relations: tuple[int, ...]
    key: str | None
    members: tuple[int, ...]
    covered: frozenset[int] = frozenset()


def read(
    config: Config, source: Connection, pipeline: Connection, stored: ReplicationSource
) -> dict[int, CapturedTable]:
    """Return the tables that the publications in use publish now, by oid."""
    own = own_tables.read(source, pipeline, config.events_tables)
    found = [
        table
        for table in publishable_tables.read(source, config.publication)
        if not own.includes(table.schema, table.names)
    ]
    by_oid = {table.oid: table for table in found}
    published = publication_ledger.read_publications(
        source, list(publication_ledger.known_publications(stored))
    ).values()
    covered = publishable_tables.find_covered(found, published)
    covered_oids = frozenset(table.oid for table in covered)
    roots = {table.line[-1] for table in covered} & by_oid.keys()
    whole = [each for each in published if {"update", "delete"} <= set(each.actions)]
    updated = _updated(found, whole)
    holding: dict[int, list[PublishableTable]] = {root: [] for root in roots}
    for table in found:
        if not table.partitioned and table.line[-1] in holding:
            holding[table.line[-1]].append(table)
    return {
        oid: CapturedTable(
            oid,
            by_oid[oid].schema,
            by_oid[oid].name,
            updated.issuperset([each.oid for each in holding[oid]] or [oid]),
            tuple(each.oid for each in holding[oid]),
            _key(holding[oid]),
            tuple(sorted(each.tables[str(oid)][0] for each in whole if str(oid) in each.tables)),
            covered_oids.intersection(each.oid for each in holding[oid]),
        )
        for oid in roots
    }


def read_void_place(pipeline: Connection, stored: ReplicationSource, table_oid: int) -> tuple[int, int] | None:
    """Return epoch and LSN up to which events know a table's rows by another key than now; None if none do."""
    values = {"source": stored.id, "oid": table_oid}
    row: tuple[int, int] | None = pipeline.execute(_VOID_UPTO, values).fetchone()
    return row


def _key(holding: Sequence[PublishableTable]) -> str | None:
    found = {", ".join(map(str, table.key_columns)) for table in holding}
    return "; ".join(sorted(found)) if found else None


def _updated(tables: Sequence[PublishableTable], whole: Collection[PublicationState]) -> set[int]:
    """Return the tables whose updates and deletes are published.

    A table that has just got its key is moved to the publication of updates later.
    """
    return {table.oid for table in publishable_tables.find_covered(tables, whole) if table.keyed}


def is_about_to_be_keyed(
    source: Connection, pipeline: Connection, stored: ReplicationSource, table: int, relation: int
) -> bool:
    """True if the server will publish the updates of a table, and then read the table again.

    Such a table has its key already, in all partitions. `relation`: the table itself, or the partition in question.
    """
    values = {"source": stored.id, "oid": table}
    row = pipeline.execute(_UPDATES_CAPTURED, values).fetchone()
    if not stored.publications or row is None or row[0]:
        return False
    found = publishable_tables.read(source, next(iter(stored.publications)), by_publisher=True)
    leaves = [each for each in found if not each.partitioned and each.line[-1] == table]
    return all(each.keyed for each in leaves) and any(each.oid == relation and each.owned for each in leaves)
