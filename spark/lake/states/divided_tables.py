"""Finds tables whose changes are divided among events tables: no lake of one events table has all of their changes.

Two facts show this: the routes by which changes go now, and changes of the table in another events table. A backfill
makes up for such changes, if it began after the last of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lake.states.plan import FullBackfill
from lake.storage.identity import Lake
from lake.tables.forms import LakeTableForm
from lake.tables.source_tables import LinkedTable
from pyspark_sequin_events.query import qualified

CHANGES = ("insert", "update", "delete", "truncate", "read")
"""The actions that change the rows of a table."""
NEVER = 2**63 - 1
_OTHERS = """
    select o.name, exists (
        select from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname || '.' || c.relname = o.name and c.relkind in ('r', 'p')
    ) as is_there
    from (select name from pipeline.events_tables union select events_table from pipeline.lakes) o
    where o.name <> $1 order by 1
"""
_ROUTES = """
    select distinct on (source_id) source_id::text, events_table, routes::text from pipeline.routes
    where $1 or coalesce((first_seqs ->> $2)::bigint, 0) <= $3
    order by source_id, id desc
"""
_CHANGED_LATER = """
    select first_seqs::text from pipeline.routes where (first_seqs ->> $1)::bigint > $2 order by id limit 1
"""
_ASKED = "json_to_recordset($1::text::json) a (n int, source uuid, epoch int, oid bigint, after bigint, below bigint)"
_IN_LOG = """
    select distinct a.n from {asked} cross join lateral (
        select from {events} e where e.source_database_id = a.source and e.source_table_oid = a.oid
            and e.source_epoch = a.epoch and e.seq > a.after and e.seq < a.below limit 1
    ) found
"""
_IN_LAKES = """
    select distinct a.n from pipeline.lakes l cross join {asked} cross join lateral (
        select from pipeline.export_files f join pipeline.exports e on e.id = f.export_id and e.state = 'committed'
        where f.lake_id = l.id and f.table_oid = a.oid and f.source_id = a.source and f.source_epoch = a.epoch
            and f.last_seq > a.after and f.first_seq < a.below limit 1
    ) found
    where l.events_table = $2
"""


@dataclass(frozen=True)
class TableDivision:
    """The reason why the lake lacks changes of a table, or the backfill `whole_since`, after which it has all."""

    reason: str | None = None
    whole_since: FullBackfill | None = None


@dataclass(frozen=True)
class DivisionQuery:
    """A table, its present form, and its newest backfill in the lake."""

    table: LinkedTable
    form: LakeTableForm
    backfill: FullBackfill | None


def other_events_tables(lake: Lake) -> dict[str, bool]:
    """Return the other events tables to which changes have gone, and if each still exists."""
    return {row["name"]: row["is_there"] for row in lake.ledger.rows(_OTHERS, (lake.events_table,))}


def divisions(lake: Lake, seq: int, asked: Sequence[DivisionQuery]) -> dict[tuple[str, int, int], TableDivision]:
    """Return the divisions of these tables as of `seq`, by their roots. Many tables need no more queries than one."""
    elsewhere = other_events_tables(lake) if asked else {}
    if not elsewhere:
        return {}
    is_head = seq >= lake.ledger.exported_upto(lake.id)
    rows = lake.ledger.rows(_ROUTES, (is_head, lake.events_table, seq))
    routes = {row["source_id"]: (row["events_table"], json.loads(row["routes"])) for row in rows}
    below = {} if is_head else _changed_later(lake, seq)
    ever: dict[int, str] = {}
    since: dict[int, str] = {}
    for name, is_there in elsewhere.items():
        bound = below.get(name, NEVER)
        ever |= dict.fromkeys(_find_changed(lake, name, is_there, ((each, 0, bound) for each in asked)), name)
        after = ((each, each.backfill.others.get(name, 0) if each.backfill else 0, bound) for each in asked)
        since |= dict.fromkeys(_find_changed(lake, name, is_there, after), name)
    found = {}
    for number, each in enumerate(asked):
        reason = _by_routes(lake.events_table, routes.get(each.form.source_id), each.form)
        if reason is None and number in since:
            reason = _by_changes(lake.events_table, since[number], each.form)
        if reason or number in ever:
            found[each.table.root] = TableDivision(reason, None if reason else each.backfill)
    return found


def destinations(default: str, routes: Iterable[Mapping[str, Any]], schema: str, name: str) -> set[str]:
    """Return the events tables to which changes of a table go."""
    found = set()
    for action in CHANGES:
        taking = (route["events_table"] for route in routes if _matches(route, f"{schema}.{name}", action))
        found.add(next(taking, default))
    return found


def _matches(route: Mapping[str, Any], name: str, action: str) -> bool:
    if route["actions"] and action not in route["actions"]:
        return False
    return not route["tables"] or any(re.fullmatch(_expression(each), name, re.DOTALL) for each in route["tables"])


def _expression(pattern: str) -> str:
    """Return the regular expression of a pattern. It never backtracks beyond the last star, so it takes linear time."""
    first, *rest = map(re.escape, pattern.split("*"))
    between = "".join(f"(?>.*?{part})" for part in rest[:-1])
    return f"{first}{between}.*{rest[-1]}" if rest else first


def _by_routes(
    events_table: str, recorded: tuple[str, Sequence[Mapping[str, Any]]] | None, form: LakeTableForm
) -> str | None:
    if recorded is None:
        return None
    going = destinations(*recorded, form.schema, form.name)
    elsewhere = ", ".join(sorted(going - {events_table}))
    if not elsewhere:
        return None
    if events_table not in going:
        return f"routes send its changes to {elsewhere}; read the lake of that events table"
    return f"routes send some of its changes to {elsewhere}; read changes in each lake, or route all of them to one"


def _by_changes(events_table: str, other: str, form: LakeTableForm) -> str:
    return (
        f"{other} has changes of the table that {events_table} lacks; "
        f"run `pipeline backfill start {form.schema}.{form.name}`, which reads its rows again"
    )


def _changed_later(lake: Lake, seq: int) -> dict[str, int]:
    """Return the first seq after the next change of routes, by events table: later events are newer than `seq`."""
    rows = lake.ledger.rows(_CHANGED_LATER, (lake.events_table, seq))
    return {name: int(first) for name, first in json.loads(rows[0]["first_seqs"]).items()} if rows else {}


def _find_changed(
    lake: Lake, name: str, is_there: bool, asked: Iterable[tuple[DivisionQuery, int, int]]
) -> Collection[int]:
    """Return the indexes of queries whose tables have changes between two seqs in another events table or its lakes."""
    given = json.dumps(list(_query_rows(asked)))
    found = {row["n"] for row in lake.ledger.rows(_IN_LAKES.format(asked=_ASKED), (given, name))}
    if is_there:
        with lake.ledger.transaction():
            # If a table has no changes, the planner's choice would read all of the log to find that out.
            lake.ledger.execute("set local enable_seqscan = off")
            query = _IN_LOG.format(asked=_ASKED, events=qualified(name))
            found |= {row["n"] for row in lake.ledger.rows(query, (given,))}
    return found


def _query_rows(asked: Iterable[tuple[DivisionQuery, int, int]]) -> Iterator[dict[str, object]]:
    for number, (each, after, below) in enumerate(asked):
        for (source, epoch), oid in each.table.oids.items():
            yield {"n": number, "source": source, "epoch": epoch, "oid": oid, "after": after, "below": below}
