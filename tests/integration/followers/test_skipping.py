"""Leaving a transaction out of a follower: which one comes next, and that position and record move together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from pipeline.errors import ApplierOvertakenError
from pipeline.followers.applying import position, skipping
from pipeline.followers.applying.position import FollowerPosition
from pipeline.log.table import DEFAULT
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.following import NAME, Follower, drain, follower
from tests.fixtures.postgres import Cluster
from tests.fixtures.stage import Stage, databases

TABLES = ("create table one (id int primary key)", "create table two (id int primary key)")


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    """Three transactions on two tables."""
    with databases(cluster, cluster, snapshot="never") as config, Stage(config) as stage:
        stage.start()
        stage.run(*TABLES)
        publish_new_tables(stage.config)
        stage.run("insert into one values (1)")
        stage.transaction("insert into one values (2)", "insert into two values (2)", "delete from one where id = 1")
        stage.run("insert into two values (3)")
        stage.arrive()
        yield stage


@pytest.fixture
def there(stage: Stage, cluster: Cluster) -> Iterator[Follower]:
    with follower(stage, cluster, *TABLES) as made:
        yield made


def here(there: Follower) -> FollowerPosition:
    found = position.find(there.look, there.source, NAME)
    assert found is not None
    return found


def test_the_next_transaction_is_whole_and_names_its_tables(stage: Stage, there: Follower) -> None:
    seqs = [row["seq"] for row in stage.look("select seq from sequin_events where action <> 'message' order by seq")]
    begin = here(there)
    first = skipping.find_next(stage.log, begin, DEFAULT)
    assert first is not None
    assert (first.first_seq, first.last_seq, first.events, first.tables) == (seqs[0], seqs[0], 1, ["public.one"])
    after = skipping.skip(there.look, begin, first, "so")
    second = skipping.find_next(stage.log, after, DEFAULT)
    assert second is not None
    assert (second.first_seq, second.last_seq, second.events) == (seqs[1], seqs[3], 3)
    assert sorted(second.tables) == ["public.one", "public.two"]
    skipping.skip(there.look, after, second, "so")
    drain(there.applier(["one", "two"]))
    assert there.rows("select id from one union all select id from two") == [(3,)]
    assert there.rows("select first_seq, last_seq, events, reason from pipeline_follower.skipped order by 1") == [
        (seqs[0], seqs[0], 1, "so"),
        (seqs[1], seqs[3], 3, "so"),
    ]
    assert skipping.find_next(stage.log, replace(here(there), seq=10**9), DEFAULT) is None


def test_nothing_is_skipped_where_the_follower_has_gone_on(stage: Stage, there: Follower) -> None:
    begin = here(there)
    first = skipping.find_next(stage.log, begin, DEFAULT)
    assert first is not None
    drain(there.applier(["one", "two"]))
    reached = there.position()
    with pytest.raises(ApplierOvertakenError):
        skipping.skip(there.look, begin, first, "so")
    assert there.position() == reached
    assert there.rows("select from pipeline_follower.skipped") == []


def test_a_record_that_cannot_be_kept_moves_nothing(stage: Stage, there: Follower) -> None:
    begin = here(there)
    first = skipping.find_next(stage.log, begin, DEFAULT)
    assert first is not None
    there.run("alter table pipeline_follower.skipped add check (false)")
    with pytest.raises(psycopg.errors.CheckViolation, match="violates check constraint"):
        skipping.skip(there.look, begin, first, "so")
    assert here(there) == begin
