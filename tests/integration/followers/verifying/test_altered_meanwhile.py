"""Tables that their owner alters while they are compared run none of his code, and are refused."""

from __future__ import annotations

import pytest

from pipeline.errors import NotComparableError
from pipeline.followers import connecting
from pipeline.followers.verifying import comparison, shape
from pipeline.followers.verifying.comparison import TableComparison
from pipeline.followers.verifying.shape import ComparedRelation, ComparedTable
from pipeline.postgres import connections, reading_session
from tests.fixtures.hostile_objects import Hostile
from tests.fixtures.postgres import Cluster

COLORS = """create type app.color as enum ('a', 'b');
    create domain app.hue as app.color;
    create table app.t (id app.hue primary key, n int);
    insert into app.t values ('a', 1), ('b', 2)"""
RENAMED = """alter type app.color rename to other;
    create type app.color as enum ('a', 'b');
    create function app.color_of(app.other) returns app.color language sql as
        $$ select case when app.run('cast to a type of that name') then 'a'::app.color end $$;
    create cast (app.other as app.color) with function app.color_of(app.other) as assignment"""
NUMBERS = "create table app.t (id int primary key, n int); insert into app.t select i, i from generate_series(1, 3) i"
ALTERED = """create type app.number as enum ('1', '2', '3');
    create function app.int_of(app.number) returns int language sql as
        $$ select app.run('cast of a type that came later')::int $$;
    create cast (app.number as int) with function app.int_of(app.number) as implicit;
    alter table app.t alter id type app.number using id::text::app.number"""


@pytest.mark.parametrize("at", ["source", "follower"])
@pytest.mark.parametrize(("made", "altered"), [(COLORS, RENAMED), (NUMBERS, ALTERED)], ids=["renamed", "altered"])
def test_no_code_of_an_owner_runs_who_alters_his_table_meanwhile(
    cluster: Cluster, made: str, altered: str, at: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(comparison, "ROWS_PER_PART", 1)
    with cluster.database("source") as source_dsn, cluster.database("follower") as follower_dsn:
        owners = {"source": Hostile(cluster, source_dsn, []), "follower": Hostile(cluster, follower_dsn, [])}
        for each in owners.values():
            with each.as_owner() as owner:
                owner.execute(made.encode())
        with owners["follower"].as_owner() as owner:
            owner.execute("delete from app.t where n operator(pg_catalog.=) 2")
        table = ComparedTable("app", "t", ("id", "n"), ("id",), (ComparedRelation("app.t", None),), "app", "t")
        with (
            connections.connect(source_dsn, "source", settings=comparison.SOURCE, prepare_threshold=None) as source,
            connecting.connect("f", follower_dsn, program="test", prepare_threshold=None) as follower,
        ):
            with (
                reading_session.transaction(source, comparison.SOURCE),
                reading_session.transaction(follower, comparison.FOLLOWER),
            ):
                found = shape.read(source, follower, table)
            steps = TableComparison(source, follower, table, found, lambda: None).run()
            next(steps)
            with owners[at].as_owner() as owner:
                owner.execute(altered.encode())
            with pytest.raises(
                NotComparableError, match=r"altered while it was compared; run the command again|an implicit cast"
            ):
                list(steps)
        for each in owners.values():
            assert each.ran() == set()
            each.require_no_harm()
