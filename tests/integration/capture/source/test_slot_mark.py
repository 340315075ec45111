"""A slot carries the mark of the pipeline database that reads it: no other takes it over without a word."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pipeline.capture.source import slot_mark
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import SlotTakenError, SourceUnfitError
from pipeline.operate.preflight import check
from pipeline.operate.repair import adopt
from pipeline.operate.status import collect
from pipeline.postgres import connections, migrations
from pipeline.server import serve
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.replicating import catch_up, refuse, replicate_first, run
from tests.fixtures.server import run_command
from tests.fixtures.shuffling import jumps


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    return settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)


@pytest.fixture
def replicated(config: Config) -> Config:
    """The log has 1."""
    replicate_first(config)
    return config


@pytest.fixture
def other(replicated: Config, cluster: Cluster) -> Iterator[Config]:
    """The same source and slot, from a pipeline database without anything."""
    with cluster.database("other") as dsn:
        yield replicated.with_databases(replicated.source, dsn)


def marks(config: Config) -> list[str]:
    with psycopg.connect(config.source, autocommit=True) as source:
        return slot_mark.find_marks(source, config.slot)


def own(config: Config) -> str | None:
    with connections.connect(config.database, "pipeline database") as connection:
        return slot_mark.own_id(connection)


def test_an_emptied_pipeline_database_does_not_begin_anew_at_its_slot(replicated: Config, other: Config):
    assert marks(replicated) == [own(replicated)]
    run(replicated, "insert into t values (2)")
    taken = rf'^slot "{other.slot}" is read by another pipeline database .*{own(replicated)}.*sources adopt'
    with pytest.raises(SlotTakenError, match=taken):
        serve.boot(other)
    (found,) = [finding for finding in check.run(other) if finding.level == "error" and finding.name != "port"]
    assert found.name == "slot" and "another pipeline database" in found.text
    asked = []
    adopted = adopt.adopt(other, lambda gap: asked.append(gap.begins))
    assert adopted is not None and asked == [True] and "streams from" in adopted.lines()[0]
    assert marks(other) == [own(other)]
    catch_up(other, [(0, "2")])
    assert ["is read by another pipeline database" in reason for reason in jumps(other.database)] == [True]
    with pytest.raises(SlotTakenError):
        refuse(replicated)
    assert adopt.adopt(replicated) is not None
    assert marks(replicated) == [own(replicated)]


def test_publications_that_the_other_made_are_kept_up_to_date(replicated: Config, other: Config):
    adopt.adopt(other)
    run(other, "create table later (id int primary key)")
    catch_up(other, [])
    run(other, "insert into later values (5)")
    catch_up(other, [(0, "5")])


def test_a_slot_without_a_mark_is_marked_by_whoever_has_its_position(
    replicated: Config, caplog: pytest.LogCaptureFixture
):
    """As one of a version that made no marks."""
    run(replicated, f"comment on publication {replicated.publication} is 'of the shop\n\nask Ann'")
    assert collect(replicated).slot_marked is False
    run(replicated, "insert into t values (2)")
    with caplog.at_level(logging.WARNING):
        catch_up(replicated, [(0, "1"), (0, "2")])
    assert marks(replicated) == [own(replicated)] and collect(replicated).slot_marked
    assert not [record for record in caplog.records if "taken over" in record.message]
    with psycopg.connect(replicated.source) as source:
        (comment,) = source.execute("select obj_description(oid) from pg_publication where pubname = 'pipeline'")
    assert comment[0].startswith("of the shop\n\nask Ann\nslot ")


def test_comments_without_a_mark_of_this_slot_stay_as_they_are(replicated: Config):
    theirs = "by Ann\r\nof the shop\n"
    run(replicated, "create publication other; comment on publication other is e'by Ann\\r\\nof the shop\\n'")
    run(replicated, "insert into t values (2)")
    catch_up(replicated, [(0, "1"), (0, "2")])
    with psycopg.connect(replicated.source) as source:
        (comment,) = source.execute("select obj_description(oid) from pg_publication where pubname = 'other'")
    assert comment == (theirs,)


def test_a_slot_without_mark_and_position_is_taken_with_a_warning(config: Config, caplog: pytest.LogCaptureFixture):
    run(config, "create table t (id int primary key)", f"create publication {config.publication} for table t")
    run(config, f"select pg_create_logical_replication_slot('{config.slot}', 'pgoutput')", "insert into t values (1)")
    catch_up(config, [(0, "1")])
    assert [record.levelname for record in caplog.records if "is taken over" in record.message] == ["WARNING"]
    assert jumps(config.database) == [f'slot "{config.slot}" was read for another log before']
    assert marks(config) == [own(config)]


def test_where_no_mark_can_be_left_status_says_so(config: Config):
    name = unique("role")
    run(config, "create table t (id int primary key)", f"create publication {config.publication} for table t")
    with psycopg.connect(config.source, autocommit=True) as owner:
        role = sql.Identifier(name)
        owner.execute(sql.SQL("create role {} login replication").format(role))
        try:
            theirs = config.with_databases(make_conninfo(config.source, user=name), config.database)
            catch_up(theirs, [])
            assert marks(config) == [] and collect(theirs).slot_marked is False
        finally:
            owner.execute(sql.SQL("drop owned by {0}; drop role {0}").format(role))


def test_slots_create_makes_what_a_slot_needs_and_marks_it(config: Config, cluster: Cluster, tmp_path: Path):
    run(config, "create table t (id int primary key)")
    with cluster.database("fresh") as fresh:
        new = config.with_databases(config.source, fresh)
        given = {"source_dsn": new.source, "database_dsn": fresh, "slot": new.slot}
        done = run_command("slots", "create", folder=tmp_path, **given)
        assert done.returncode == 0, done.stderr
        assert migrations.current(fresh) == migrations.head() and marks(new) == [own(new)]
        run(new, "insert into t values (1)")
        catch_up(new, [(0, "1")])
        again = run_command("slots", "create", folder=tmp_path, **given)
        assert again.returncode == 1 and "exists already" in again.stderr


def test_a_database_without_positions_adopts_nothing_else(config: Config):
    with pytest.raises(SourceUnfitError, match="no source has been replicated from yet"):
        adopt.adopt(config)
