"""What only reads at a follower, and at a source for it, runs no code of a table's owner that it can do without."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psycopg
import pytest

from pipeline.errors import NotComparableError
from pipeline.followers import connecting, row_counts
from pipeline.followers.registry import NamedTable
from pipeline.followers.verifying import comparison, shape
from pipeline.followers.verifying.comparison import RowDifference, TableComparison
from pipeline.followers.verifying.shape import ComparedRelation, ComparedTable
from pipeline.postgres import connections, reading_session
from pipeline.postgres.connections import Connection
from tests.fixtures.hostile_objects import HARMLESS, OBJECTS, OWNER_PROGRAM, Hostile, HostileObject
from tests.fixtures.postgres import Cluster

KEYLESS = "partition key"
PLANNED = {"index expression", "index predicate", "statistics", KEYLESS}


def described(follower: Connection, each: HostileObject) -> ComparedTable:
    query = "select column_name from information_schema.columns where table_schema = 'app' and table_name = %s"
    columns = tuple(name for (name,) in follower.execute(query, [each.table]).fetchall())
    holder = f"app.{each.table}" + ("_1" if each.kind == KEYLESS else "")
    key = {KEYLESS: (), "operator": ("id", "n")}.get(each.kind, ("id",))
    return ComparedTable("app", each.table, columns, key, (ComparedRelation(holder, None),), "app", each.table)


def compared(source: Connection, follower: Connection, table: ComparedTable) -> list[RowDifference] | None:
    """The differences; None of a table that is refused."""
    try:
        with (
            reading_session.transaction(source, comparison.SOURCE),
            reading_session.transaction(follower, comparison.FOLLOWER),
        ):
            found = shape.read(source, follower, table)
        steps = list(TableComparison(source, follower, table, found, lambda: None).run())
    except NotComparableError:
        return None
    return [each for step in steps for each in step.differences]


def read_all(source_dsn: str, follower_dsn: str, objects: Sequence[HostileObject]) -> None:
    """Compare each table, of which the follower lacks a row, and count its rows."""
    with (
        connections.connect(source_dsn, "source", settings=comparison.SOURCE, prepare_threshold=None) as source,
        connecting.connect("f", follower_dsn, program="test", prepare_threshold=None) as follower,
    ):
        captured = [each for each in objects if each.captured]
        for each in captured:
            found = compared(source, follower, described(follower, each))
            if each.comparable or each.kind == KEYLESS:
                assert found is not None and len(found) == 1, each.kind
            else:
                assert found is None, each.kind
        names = [NamedTable(0, "app", each.table) for each in captured]
        for side, rows in ((source, 3), (follower, 2)):
            counted = row_counts.count(side, names, by_oid=False)
            assert [each and each.rows for each in counted] == [rows] * len(captured)


@pytest.fixture(params=[16, pytest.param(18, marks=pytest.mark.long)])
def two(request: pytest.FixtureRequest, clusters: Callable[[int], Cluster]) -> tuple[Cluster, Cluster]:
    """Source and follower."""
    return clusters(request.param), clusters(request.param)


def made(cluster: Cluster, dsn: str, objects: Sequence[HostileObject], *, lacks_a_row: bool) -> Hostile:
    found = Hostile(cluster, dsn, objects)
    with found.as_owner() as owner:
        owner.execute("alter role current_user set search_path = app, public, pg_catalog")
        for each in objects if lacks_a_row else ():
            if each.captured:
                owner.execute(f"delete from app.{each.table} where n operator(pg_catalog.=) 3".encode())
    with psycopg.connect(dsn, autocommit=True) as administrator:
        name = administrator.info.dbname
        administrator.execute(f"alter database {name} set search_path = app, public, pg_catalog".encode())
    return found


def ran(objects: Hostile) -> set[str]:
    """In sessions of others: the log of the server has also how the owner made the objects of the other database."""
    return {what for what, program in objects.ran() if not program.startswith(OWNER_PROGRAM)}


def test_superusers_run_nothing_that_a_planner_does_not_run(two: tuple[Cluster, Cluster]):
    with two[0].database("source") as source_dsn, two[1].database("follower") as follower_dsn:
        source = made(two[0], source_dsn, HARMLESS, lacks_a_row=False)
        follower = made(two[1], follower_dsn, HARMLESS, lacks_a_row=True)
        read_all(source_dsn, follower_dsn, HARMLESS)
        for each in (source, follower):
            assert ran(each) == set()
            each.require_no_harm()


def test_small_roles_gain_nothing_by_what_a_planner_runs(two: tuple[Cluster, Cluster]):
    with two[0].database("source") as source_dsn, two[1].database("follower") as follower_dsn:
        source = made(two[0], source_dsn, OBJECTS, lacks_a_row=False)
        follower = made(two[1], follower_dsn, OBJECTS, lacks_a_row=True)
        roles = [each.small_role(replication=False) for each in (source, follower)]
        dsns = [f"{dsn} user={role}" for dsn, role in zip((source_dsn, follower_dsn), roles, strict=True)]
        read_all(dsns[0], dsns[1], OBJECTS)
        for each in (source, follower):
            assert ran(each) == PLANNED
            each.require_no_harm()
