"""Where the export says that a table's changes go is where the shuffler has put them, pattern by pattern."""

from __future__ import annotations

import json
from collections.abc import Iterable

from lake.states.divided_tables import CHANGES, destinations
from pipeline.config.routes import Action, Route
from pipeline.log.table import DEFAULT, EventsTable
from tests.fixtures.postgres import Cluster
from tests.fixtures.shuffling import move
from tests.fixtures.staged import Change, Staged, Table, staging_of

SOME, REST = EventsTable("public", "some_events"), EventsTable("public", "rest_events")
NAMES = ("orders", "Orders", "order_1", "orderx1", "a.b", "aXb", "[x]", "x", "50%", "a\\b", "a\nb", "tail\n", "größe")
LEAF = Table("leaf", root="orders")
ROUTES: tuple[tuple[tuple[str, ...], tuple[Action, ...], tuple[str, ...]], ...] = (
    ((), ("insert",), ("public.orders",)),
    (("*.orders*", "public.leaf"), ("delete", "truncate"), ("p*.x",)),
    (("*.*_1", "*.?", "public.50%"), ("update", "read", "message"), ("*.50*",)),
    (("public.a.b", "public.[x]"), ("insert", "read"), ("public.a*b", "other.*")),
    (("public.*\\*", "public.%"), ("update", "truncate"), ("public.tail", "PUBLIC.*", "*.gr*ße")),
    (("*.*$", ".*", "public.order|public.x"), ("delete",), ("public.*",)),
)
"""Patterns and actions of the route to the first table, and patterns of the route to the second one."""


def test_each_change_is_where_the_export_says(cluster: Cluster) -> None:
    divided = 0
    with staging_of(cluster, *map(Table, NAMES), LEAF) as staged:
        for patterns, actions, rest in ROUTES:
            routes = (
                Route(tables=patterns, actions=actions, events_table=str(SOME)),
                Route(tables=rest, events_table=str(REST)),
            )
            staged.commit(*changes(staged.tables))
            move(staged.shuffler(routes=routes))
            found, recorded = places(staged), held(staged)
            for name in NAMES:
                expected = destinations(*recorded, "public", name)
                assert found[name] == expected, (name, routes)
                divided += len(expected) > 1
    assert divided > len(NAMES)


def changes(tables: Iterable[str]) -> Iterable[Change]:
    """One of each kind that makes a table what it is, and a message."""
    for table in tables:
        for action in CHANGES:
            yield Change(action, table, {} if action == "truncate" else {"id": 1})
    yield Change("message", "note", {})


def places(staged: Staged) -> dict[str, set[str]]:
    """The events tables that have changes of the last transaction, by the tables that were changed."""
    found: dict[str, set[str]] = {}
    seen = 0
    for table in (DEFAULT, SOME, REST):
        rows = staged.connection.execute(
            f"select source_table_name from {table} where commit_lsn = %s and action <> 'message'", [staged.lsn]
        ).fetchall()
        seen += len(rows)
        for (name,) in rows:
            found.setdefault(LEAF.root if name == LEAF.name else name, set()).add(str(table))
    assert seen == len(staged.tables) * len(CHANGES)
    return found


def held(staged: Staged) -> tuple[str, list[dict[str, object]]]:
    """The default table and the routes that the log has of them."""
    row = staged.connection.execute(
        "select events_table, routes::text from pipeline.routes order by id desc limit 1"
    ).fetchone()
    assert row is not None
    return row[0], json.loads(row[1])
