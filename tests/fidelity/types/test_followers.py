"""Every value of every type is the same at a follower, inserted and updated; so are columns of any name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql

from pipeline.server.schedule import publish_new_tables
from tests.fidelity.types import cases, tables
from tests.fidelity.types.kinds import Kinds
from tests.fidelity.types.tables import ODD_COLUMNS, ODD_TABLES
from tests.fixtures.following import Follower, drain, follower
from tests.fixtures.postgres import Cluster

pytestmark = pytest.mark.xdist_group("fidelity")


@pytest.fixture(scope="module", params=["sets", "relayed"])
def followed(
    kinds: Kinds, clusters: Callable[[int], Cluster], request: pytest.FixtureRequest
) -> Iterator[tuple[Kinds, Follower]]:
    major = kinds.stage.source.info.server_version // 10000
    with follower(kinds.stage, clusters(major), way=request.param) as there:
        tables.create(there.look)
        drain(there.applier(list(cases.GROUPS)))
        yield kinds, there


def texts(connection: psycopg.Connection, table: str) -> list[tuple[int, str]]:
    query = sql.SQL("select id, t::text from public.{} t order by id").format(sql.Identifier(table))
    return connection.execute(query).fetchall()


@pytest.mark.parametrize("title", cases.GROUPS)
def test_every_value_arrives(followed: tuple[Kinds, Follower], title: str) -> None:
    kinds, there = followed
    assert texts(there.session, title) == texts(kinds.stage.source, title)


@pytest.mark.parametrize("title", cases.GROUPS)
def test_every_value_replaces_another(followed: tuple[Kinds, Follower], title: str) -> None:
    kinds, there = followed
    nothing = [
        sql.SQL("{} = null").format(sql.Identifier(name + suffix))
        for name, case in kinds.groups[title].items()
        if case.nulls
        for suffix in ("", "_array")
    ]
    table = sql.Identifier("public", title)
    there.look.execute(sql.SQL("update {} set {}").format(table, sql.SQL(", ").join(nothing)))
    kinds.stage.replicate(sql.SQL("update {} set id = id").format(table))
    drain(there.applier(list(cases.GROUPS)))
    assert texts(there.session, title) == texts(kinds.stage.source, title)


def test_columns_of_any_name(followed: tuple[Kinds, Follower]) -> None:
    kinds, there = followed
    wanted = ODD_TABLES[:6]
    for table in wanted:
        name = sql.Identifier("public", table)
        row = sql.SQL("insert into {} values (1, {})").format(name, sql.SQL(", ").join(map(sql.Literal, ODD_COLUMNS)))
        kinds.stage.replicate(
            sql.SQL("truncate {}").format(name),
            row,
            sql.SQL("update {} set {} = 'new'").format(name, sql.Identifier(ODD_COLUMNS[0])),
            sql.SQL("update {} set id = 2").format(name),
        )
    drain(there.applier(wanted))
    for table in wanted:
        assert texts(there.session, table) == texts(kinds.stage.source, table)
    # Other tests write to these tables, and find them empty.
    kinds.stage.replicate(*(sql.SQL("truncate {}").format(sql.Identifier("public", table)) for table in wanted))


def test_a_key_whose_type_is_of_an_extension(kinds: Kinds, clusters: Callable[[int], Cluster]) -> None:
    """Its equality is no operator of the search_path."""
    stage = kinds.stage
    if "citext" not in tables.features(stage.source):
        pytest.skip("this server has no citext")
    table = "create table public.callers (name public.citext primary key, n int)"
    stage.run(table)
    publish_new_tables(stage.config)
    stage.replicate("insert into public.callers values ('Ada', 1), ('Bob', 1), ('Cy', 1)")
    with follower(stage, clusters(15), "create extension citext", table) as there:
        applier = there.applier(["callers"])
        drain(applier)
        there.run("update callers set name = upper(name::text)")
        stage.replicate(
            "update public.callers set n = 2 where name operator(public.=) 'ada'",
            "update public.callers set name = 'BoB' where name operator(public.=) 'bob'",
            "delete from public.callers where name operator(public.=) 'cy'",
        )
        drain(applier)
        assert there.rows("select name::text, n from callers order by 1") == [("ADA", 2), ("BoB", 1)]
