"""Finds truncates of all partitions of a table in one transaction, and exports them as truncates of the table.

The log has an event for each partition, and none that names the table. Exported as changes of the table, these events
make its state empty. Truncates of single partitions are exported as changes of the partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

from adbc_driver_postgresql import dbapi

from lake.ledger import bigints
from pyspark_sequin_events import catalog
from pyspark_sequin_events.query import EVENTS, literal, qualified, table_by_oid

Row = Mapping[str, Any]
_TABLE = ("schema", "name", "source_id", "epoch", "oid")
_WHOLE = """
select r.table_schema as schema, r.table_name as name, s.id::text as source_id, t.epoch, t.root_oid as oid, t.leaf_oid,
    t.commit_lsn, t.seq
from unnest($1::text::uuid[]) s (id)
cross join lateral pipeline.partition_truncates($2, s.id, $3, 0, $4::text::bigint[]) t
cross join lateral (  -- the table's name; a table without a version in the history has no rows in the log either
    select r.table_schema, r.table_name from pipeline.relations r
    where r.source_id = s.id and r.table_oid = t.root_oid
        and (r.epoch, r.from_lsn, r.from_idx) <= (t.epoch, t.commit_lsn, t.commit_idx)
    order by r.epoch desc, r.from_lsn desc, r.from_idx desc, r.id desc limit 1
) r
where t.is_whole and t.seq > $3 and t.seq <= $5
order by 1, 2, 3, 4, 5
"""


def count_by_table(
    connection: dbapi.Connection, events_table: str, bounds: tuple[int, int], tables: Sequence[Row]
) -> list[Row]:
    """Count the rows of each table in a range, with truncates of all partitions as changes of their table.

    `tables`: the counts by the tables that the events name, in the order of _TABLE. In a result, `events` is a relation
    to read instead of the events table, and `where` is a condition on it.
    """
    truncated = [row for row in tables if row["truncates"]]
    if not truncated:
        return list(tables)
    sources = "{" + ",".join({row["source_id"] for row in truncated}) + "}"
    oids = bigints({row["oid"] for row in truncated})
    found = catalog.rows(connection, _WHOLE, (sources, events_table, bounds[0], oids, bounds[1]))
    seqs: dict[tuple[Any, ...], list[int]] = {}
    for each in found:
        seqs.setdefault((each["source_id"], each["epoch"], each["leaf_oid"]), []).append(each["seq"])
    others = (_without_truncates(row, seqs.get((row["source_id"], row["epoch"], row["oid"]), ())) for row in tables)
    rows = {_table(row): row for row in others if row is not None}
    for table, group in groupby(found, key=_table):
        rows[table] = _with_truncates(rows.get(table), dict(zip(_TABLE, table, strict=True)), list(group), events_table)
    return [rows[table] for table in sorted(rows)]


def _table(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in _TABLE)


def _without_truncates(row: Row, seqs: Collection[int]) -> Row | None:
    """Return a partition's counts without these truncates; None if no changes remain."""
    if not seqs:
        return row
    if row["rows"] == len(seqs):
        return None
    where = f" and not (action = 'truncate' and seq = any('{bigints(seqs)}'::bigint[]))"
    return {**row, "rows": row["rows"] - len(seqs), "placed": row["placed"] - len(seqs), "where": where}


def _with_truncates(row: Row | None, table: Row, truncates: Sequence[Row], events_table: str) -> Row:
    """Return a table's counts with these truncates."""
    seqs, lsns = ([each[name] for each in truncates] for name in ("seq", "commit_lsn"))
    named = {
        "source_table_oid": f"{int(table['oid'])}::bigint",
        "source_table_schema": f"{literal(table['schema'])}::text",
        "source_table_name": f"{literal(table['name'])}::text",
    }
    events = qualified(events_table)
    of_table = table_by_oid(table["source_id"], table["epoch"], table["oid"])
    both = (
        f"(select {', '.join(EVENTS)} from {events} where true{of_table} union all"
        f" select {', '.join(named.get(name, name) for name in EVENTS)} from {events}"
        f" where action = 'truncate' and seq = any('{bigints(seqs)}'::bigint[])) events"
    )
    before = row or {"rows": 0, "placed": 0, "first_lsn": None, "last_lsn": None, "first": seqs[0], "last": seqs[0]}
    lsns += [lsn for lsn in (before["first_lsn"], before["last_lsn"]) if lsn is not None]
    return {
        **table,
        "rows": before["rows"] + len(seqs),
        "placed": before["placed"] + len(seqs),
        "first_lsn": min(lsns),
        "last_lsn": max(lsns),
        "first": min(before["first"], *seqs),
        "last": max(before["last"], *seqs),
        "events": both,
    }
