"""Describes a table from a Relation message and the catalog: the message has it as it was, the catalog as it is now."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pipeline.capture.schema_history import catalog_table
from pipeline.capture.schema_history.completion import complete_version
from pipeline.capture.schema_history.fingerprint import TableFingerprint
from pipeline.capture.schema_history.versions import HistoryVersion, KnownVersion, PublishedColumn, from_stored
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal.messages import RelationColumn, RelationMessage

_VISIBLE_TIMEOUT, _POLL = 5.0, 0.002
"""Seconds to wait until a transaction that was sent is visible, and seconds between two queries."""


@dataclass(frozen=True)
class TableDescription:
    """A version whose columns have no `names` yet, and the table's fingerprint; None if the table was dropped."""

    version: HistoryVersion
    fingerprint: TableFingerprint | None

    def to_json(self) -> dict[str, Any]:
        """Return the value of `pipeline.snapshot_ranges.version`."""
        return {**asdict(self.version), "fingerprint": self.fingerprint.to_json() if self.fingerprint else None}

    @staticmethod
    def from_json(stored: dict[str, Any], since: tuple[int, int]) -> TableDescription:
        """Read what `to_json` returned. `since`: the place from which the version holds."""
        read = stored.pop("fingerprint")
        found = from_stored(stored, since)
        columns = tuple(replace(column, names=()) for column in found.columns)
        return TableDescription(replace(found, columns=columns), TableFingerprint.from_json(read) if read else None)


def describe(
    source: Connection,
    relation: RelationMessage,
    slot: str,
    publications: Sequence[str],
    xid: int | None,
    before: KnownVersion | None,
    *,
    again: bool,
    made: Sequence[int] = (),
    joined: bool = False,
    numbers: Mapping[str, int] | None = None,
) -> TableDescription:
    """Complete a Relation message with attnums, partition root, FULL's primary key and domains over json.

    `xid`: of the transaction of the change; None if not known. `before`: the last known version, preferred over a
    catalog that was changed since then. `again`: the message was already sent in this session. `made`: oids of
    publications that we made, which have no column lists. `joined`: the change comes after everything that publishes
    the table now. `numbers`: attnums of its columns by name, as the catalog had them a moment ago.
    """
    if xid is not None:
        wait_until_visible(source, xid)
    table = catalog_table.read(source, relation.oid, slot, publications, xid, made)
    if joined and table is not None:
        table = replace(table, memberships=tuple((oid, True) for oid, _ in table.memberships))
    types = catalog_table.type_names(source, [column.type_oid for column in relation.columns])
    version = complete_version(relation, table, types, before.version if before else None, again=again)
    if numbers is not None and table is not None:
        existing = {(column.name, column.attnum) for column in table.live}
        version = replace(version, columns=tuple(_numbered(column, numbers, existing) for column in version.columns))
    return TableDescription(
        version, table.fingerprint([column.attnum for column in version.columns]) if table else None
    )


def _numbered(
    column: PublishedColumn, numbers: Mapping[str, int], existing: Collection[tuple[str, int]]
) -> PublishedColumn:
    number = numbers.get(column.name)
    return replace(column, attnum=number) if number is not None and (column.name, number) in existing else column


def wait_until_visible(source: Connection, xid: int) -> None:
    """Wait until a transaction is visible: it is sent at its commit record, but visible only later.

    For example, it may wait for a synchronous standby.
    """
    deadline = time.monotonic() + _VISIBLE_TIMEOUT
    while True:
        if (
            queries.value(source, statement("capture.schema_history", "is_visible"), {"xid": xid})
        ) or time.monotonic() > deadline:
            return
        time.sleep(_POLL)


def describe_now(source: Connection, known: KnownVersion, slot: str) -> TableDescription | None:
    """Return a table as the catalog has it now, wherever the stream is; None if the table was dropped."""
    version = known.version
    table = catalog_table.read(source, version.relation_oid, slot)
    if table is None:
        return None
    numbers = [column.attnum for column in version.columns if column.attnum is not None]
    last = max(numbers, default=0)
    live = [
        PublishedColumn(column.name, column.type_oid, 0, "", column.type_oid, False, column.attnum)
        for column in table.live
        if column.attnum in numbers or (column.attnum > last and numbers)
    ]
    return TableDescription(
        replace(version, columns=tuple(live)), table.fingerprint([column.attnum for column in live])
    )


def describe_current(
    source: Connection,
    oid: int,
    slot: str,
    publications: Sequence[str],
    made: Sequence[int],
    sent: Collection[str] | None = None,
    *,
    joined: bool = False,
) -> TableDescription | None:
    """Return a table as a change made now would be described; None if it was dropped. `sent`: only these columns are
    sent.

    `joined`: everything that publishes the table counts, even if the slot may still send earlier changes.
    """
    with source.transaction():
        source.execute("set local search_path = ''")  # so that names of types are qualified
        row = source.execute(statement("capture.schema_history", "describe_sent"), {"oid": oid}).fetchone()
        if row is None:
            return None
        name, schema, identity, columns = row
        described = {RelationColumn(*column): number for *column, number in columns}
        relation = RelationMessage(
            oid, schema, name, identity, tuple(column for column in described if sent is None or column.name in sent)
        )
        numbers = {column.name: number for column, number in described.items()}
        found = describe(
            source, relation, slot, publications, None, None, again=False, made=made, joined=joined, numbers=numbers
        )
    return found if found.fingerprint else None
