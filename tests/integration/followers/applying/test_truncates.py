"""Truncates at a follower: of partitions that it does not have, and of tables in use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from time import monotonic

import psycopg
import pytest

from pipeline.errors import NotFollowableError, TableLockedError
from pipeline.followers.applying.followed_tables import TableToFollow
from pipeline.followers.applying.table_versions import ReachedVersion
from pipeline.followers.running import following
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.following import drain, follower, oid
from tests.fixtures.postgres import Cluster
from tests.fixtures.stage import Stage, databases

pytestmark = pytest.mark.xdist_group("followers-truncates")


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    with databases(cluster, cluster, snapshot="never") as config, Stage(config) as stage:
        stage.start()
        yield stage


def made(stage: Stage, *statements: str) -> None:
    """Tables that are captured."""
    stage.run(*statements)
    publish_new_tables(stage.config)


def applied(stage: Stage, cluster: Cluster, table: str, *there: str) -> list[int]:
    """The ids that a follower has in the end, in which these were run. It may lack partitions."""
    bound_of, number = partial(following.ask_partition_bounds, stage.config), oid(stage, table)
    with follower(stage, cluster, *there) as found:
        applier = found.applier([table], bound_of=bound_of)
        while True:
            try:
                drain(applier)
            except NotFollowableError as error:
                assert error.why == "changed"
                formed = ReachedVersion(applier.tables[number].changes_at)
                applier = found.applier({number: TableToFollow("public", table, reached=formed)}, bound_of=bound_of)
            else:
                return [each for (each,) in found.rows(f"select id from {table} order by id")]


PLAIN = "create table {} (id int primary key)"
OTHER = (
    "create table {0} (id int primary key) partition by range (id)",
    "create table {0}_all partition of {0} for values from (0) to (1000)",
)


@pytest.mark.parametrize("there", [(PLAIN,), OTHER], ids=["plain", "other partitions"])
def test_rows_of_a_partition_the_follower_lacks_are_known_by_its_bound(
    stage: Stage, cluster: Cluster, there: Sequence[str]
) -> None:
    name = f"bound_{len(there)}"
    made(
        stage,
        f"create table {name} (id int primary key) partition by range (id)",
        f"create table {name}_low partition of {name} for values from (0) to (100) partition by list (id)",
        f"create table {name}_few partition of {name}_low for values in (1, 2)",
        f"create table {name}_more partition of {name}_low for values in (3, 4)",
        f"create table {name}_high partition of {name} for values from (100) to (200)",
    )
    stage.run(f"insert into {name} values (1), (2), (3), (150), (160)")
    stage.transaction(
        f"insert into {name} values (4), (170)", f"truncate {name}_few, {name}_high", f"insert into {name} values (1)"
    )
    stage.arrive()
    assert applied(stage, cluster, name, *(each.format(name) for each in there)) == [1, 3, 4]


@pytest.mark.parametrize(
    ("by", "values", "then"),
    [
        ("hash (id)", "with (modulus 1, remainder 0)", ""),
        ("range (id)", "default", ""),
        ("range (id)", "from (0) to (100)", "alter table {0} detach partition {0}_one"),
        ("range (id)", "from (0) to (100)", "drop table {0}_one"),
    ],
    ids=["hash", "default", "detached", "dropped"],
)
def test_where_nothing_says_which_rows_it_had_the_follower_stops(
    stage: Stage, cluster: Cluster, by: str, values: str, then: str
) -> None:
    name = f"unbound_{len(values)}_{len(then)}"
    values = values if values == "default" else f"for values {values}"
    made(
        stage,
        f"create table {name} (id int primary key) partition by {by}",
        f"create table {name}_one partition of {name} {values}",
    )
    stage.run(f"insert into {name} values (1)", f"truncate {name}_one", f"insert into {name} values (2)")
    stage.arrive()
    if then:
        stage.run(then.format(name))
    with follower(stage, cluster, PLAIN.format(name)) as there:
        applier = there.applier([name], bound_of=partial(following.ask_partition_bounds, stage.config))
        with pytest.raises(NotFollowableError) as stopped:
            drain(applier)
        assert stopped.value.why == "partition"
        assert "the source no longer knows which rows it had" in str(stopped.value)
        assert there.rows(f"select id from {name}") == [(1,)]


def test_a_truncate_gives_way_to_readers_and_names_who_uses_the_table(stage: Stage, cluster: Cluster) -> None:
    tables = [
        "create table used (id int primary key) partition by range (id)",
        "create table used_low partition of used for values from (0) to (100)",
    ]
    made(stage, *tables)
    stage.run("insert into used values (1)")
    stage.transaction("truncate used", "insert into used values (2)")
    stage.arrive()
    with follower(stage, cluster, *tables) as there:
        applier = there.applier(["used"])
        drain_until_locked = pytest.raises(TableLockedError)
        with psycopg.connect(there.dsn, application_name="report") as reader:
            reader.execute("select from used_low")
            began = monotonic()
            with drain_until_locked as locked:
                drain(applier)
            assert monotonic() - began >= 1
            pid = reader.info.backend_pid
            assert locked.value.pid == pid
            said = str(locked.value)
            assert said.startswith(f"a truncate of public.used_low waits for pid {pid} (")
            assert said.endswith(", report, idle in transaction), which uses it")
            assert there.rows("select id from used") == [(1,)], "who reads does not wait behind it"
        drain(applier)
        assert there.rows("select id from used") == [(2,)]
