"""Finds the first event that a stream of one table cannot deliver, because the stream lacks a column of it."""

from __future__ import annotations

from dataclasses import dataclass

from adbc_driver_postgresql import dbapi

from pyspark_sequin_events.catalog import relations, rows
from pyspark_sequin_events.history import RelationHistoryVersion, SchemaVersion, VersionSpan, table_versions, versions
from pyspark_sequin_events.query import bounded, literal, qualified, table_named, within_span
from pyspark_sequin_events.selection import ChosenTable
from pyspark_sequin_events.transactions import TransactionEnds
from pyspark_sequin_events.types import wider


@dataclass(frozen=True)
class UncoveredEvent:
    """The first event that the stream cannot deliver: its seq, its schema version, and the transaction end before it.

    `end_before` None: the event is in the first transaction.
    """

    seq: int
    version: int
    end_before: int | None


def first_uncovered(
    connection: dbapi.Connection, events_table: str, chosen: ChosenTable, after: int, upto: int
) -> UncoveredEvent | None:
    """Find the first uncovered event in after < seq <= upto; None, in nearly all cases, if every event is covered."""
    history = table_versions(relations(connection, chosen.schema, chosen.name))
    spans = [
        (span, number)
        for span, number in uncovered_spans(history, chosen.version)
        if _reaches(connection, events_table, span, after, upto)
    ]
    if not spans:
        return None
    number = " ".join(f"when {within_span(span)} then {number}" for span, number in spans)
    found = rows(
        connection,
        f"select seq, case {number} end as version from {qualified(events_table)} where {bounded(after, upto)}"
        f" and {table_named(chosen.schema, chosen.name)} and case {number} end is not null order by seq limit 1",
    )
    if not found:
        return None
    seq = int(found[0]["seq"])
    return UncoveredEvent(
        seq, int(found[0]["version"]), TransactionEnds(connection, events_table, after, upto).end_before(seq)
    )


def uncovered_spans(history: list[RelationHistoryVersion], version: SchemaVersion) -> list[tuple[VersionSpan, int]]:
    """Return the parts of the history in which the table had columns that this version lacked when it was read.

    Each part comes with the number of its schema version.
    """
    numbers = _numbers(history)
    found = []
    for number, table in enumerate(history):
        following = history[number + 1] if number + 1 < len(history) else None
        until = following.since if following and following.source_id == table.source_id else None
        if numbers[number] != version.number or not _fits(table, version):
            first = number == 0 or history[number - 1].source_id != table.source_id
            found.append((VersionSpan(table.source_id, None if first else table.since, until), numbers[number]))
    return found


def _numbers(history: list[RelationHistoryVersion]) -> list[int]:
    """Return the number of the schema version of each table version."""
    return [len(versions(history[: upto + 1])) for upto in range(len(history))]


def _fits(table: RelationHistoryVersion, version: SchemaVersion) -> bool:
    return all(
        name in version.columns
        and wider(version.columns[name], spark) == version.columns[name]
        and (name in table.json) == (name in version.json)
        for name, spark in table.columns.items()
    )


def _reaches(connection: dbapi.Connection, events_table: str, span: VersionSpan, after: int, upto: int) -> bool:
    """Return True if the range between these two events may have events of that span.

    An event that was retried has a later place than its LSN, and an event of another source says nothing about this
    one.
    """
    unsure = f"source_database_id <> {literal(span.source_id)} or commit_lsn is null or metadata is not null"
    ends = [
        f"(select {unsure} or {within_span(VersionSpan(span.source_id, *bounds))} from"
        f" (select * from {qualified(events_table)} where {bounded(after, upto)} order by seq {order} limit 1) e)"
        for bounds, order in (((span.since, None), "desc"), ((None, span.until), "asc"))
    ]
    [found] = rows(connection, f"select {' and '.join(ends)} as reaches")
    return found["reaches"] is not False
