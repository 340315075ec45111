"""From when to when a table is captured: what is missing of it is on record, and a typo takes nothing out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.operate import known_sources
from pipeline.operate.status import collect
from pipeline.postgres import connections
from pipeline.server import schedule
from tests.fixtures.stage import Stage


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    return settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)


@pytest.fixture
def stage(config: Config) -> Iterator[Stage]:
    with Stage(config) as made:
        made.run("create table filled (id int primary key)", "insert into filled values (1)")
        made.run("create table empty (id int primary key)")
        made.start()
        yield made


def gaps(config: Config) -> list[tuple[str, str, bool]]:
    """Table, what is missing, and whether it still is."""
    with connections.connect(config.database, "pipeline database") as connection:
        (source,) = known_sources.collect(connection)
    assert source.gaps == collect(config).gaps
    return [(gap.table, gap.what, gap.until is None) for gap in source.gaps if gap.table != "public.mark"]


def published(source: psycopg.Connection) -> list[str]:
    rows = source.execute("select tablename from pg_publication_tables where tablename <> 'mark' order by 1")
    return [name for (name,) in rows.fetchall()]


def test_rows_from_before_a_table_joined_are_on_record(config: Config, stage: Stage):
    assert gaps(config) == [("public.filled", "rows", False)]
    with stage.source.transaction():
        stage.run("create table late (id int primary key)", "insert into late select generate_series(1, 9)")
    stage.run("create table emptied (id int primary key)", "insert into emptied values (1)", "delete from emptied")
    stage.run("create table fresh (id int primary key)")
    schedule.publish_new_tables(config)
    stage.run("insert into fresh values (1)")
    assert gaps(config) == [("public.filled", "rows", False), ("public.late", "rows", False)]
    stage.run("drop table late")
    schedule.publish_new_tables(config)
    assert gaps(config) == [("public.filled", "rows", False)]


def test_looks_over_the_same_sessions_see_what_has_come_since(config: Config, stage: Stage):
    with closing(schedule.publishing_sessions(config)) as sessions:
        for number in range(7):  # from the sixth on statements are prepared
            stage.run(f"create table new_{number} (id int primary key)")
            schedule.publish_new_tables(config, sessions)
        stage.run("drop table new_3")
        schedule.publish_new_tables(config, sessions)
    assert published(stage.source) == ["empty", "filled", *(f"new_{number}" for number in range(7) if number != 3)]


def test_rows_of_a_transaction_open_when_the_table_joins_are_recorded(config: Config, stage: Stage):
    stage.run("create table later (id int primary key)")
    with psycopg.connect(config.source) as open_:
        open_.execute("insert into later values (1)")
        schedule.publish_new_tables(config)
        open_.execute("insert into later values (2)")
    assert gaps(config) == [("public.filled", "rows", False), ("public.later", "rows", False)]
    assert stage.arrive()
    rows = stage.log.execute("select record_pk from public.sequin_events where source_table_name = 'later'")
    assert rows.fetchall() == [("2",)]


def test_a_table_that_is_taken_out_is_a_gap_until_it_comes_back(
    config: Config, stage: Stage, caplog: pytest.LogCaptureFixture
):
    other = config.model_copy(update={"tables": ("public.filled", "public.mark")})
    schedule.publish_new_tables(other)
    assert published(stage.source) == ["filled"]
    (warned,) = [record for record in caplog.records if record.__dict__.get("action") == "publication.left"]
    assert warned.levelname == "WARNING"
    assert warned.message.startswith("public.empty was removed from the publication")
    assert gaps(config) == [("public.empty", "changes", True), ("public.filled", "rows", False)]
    stage.run("insert into empty values (1)")
    schedule.publish_new_tables(config)
    stage.run("insert into empty values (2)")
    assert gaps(config) == [("public.empty", "changes", False), ("public.filled", "rows", False)]
    (gap,) = [gap for gap in collect(config).gaps if gap.what == "changes"]
    stage.arrive()
    (lsn,) = stage.log.execute(
        "select commit_lsn from public.sequin_events where source_table_name = 'empty'"
    ).fetchall()[0]
    assert gap.from_lsn is not None and gap.until_lsn is not None and gap.from_lsn < gap.until_lsn < lsn


def test_a_table_that_gets_a_key_moves_without_a_gap(config: Config, stage: Stage):
    stage.run("create table keyless (id int)")
    schedule.publish_new_tables(config)
    stage.run("alter table keyless add primary key (id)")
    schedule.publish_new_tables(config)
    assert gaps(config) == [("public.filled", "rows", False)]


def test_a_typo_takes_nothing_out_and_is_not_ready(config: Config, stage: Stage):
    typo = config.model_copy(update={"tables": ("publc.*",)})
    schedule.publish_new_tables(typo)
    assert published(stage.source) == ["empty", "filled"]
    (reason,) = [reason for reason in collect(config).reasons if "PIPELINE_TABLES" in reason]
    assert reason.startswith("replication: PIPELINE_TABLES (publc.*) matches none of the source's tables (public.")
    lag = collect(config).lag
    assert lag is not None and lag.limits[0].text == reason
    schedule.publish_new_tables(config)
    assert [reason for reason in collect(config).reasons if "PIPELINE_TABLES" in reason] == []


def test_a_source_without_tables_is_ready(config: Config):
    with Stage(config.model_copy(update={"tables": ("shop.*",)})) as stage:
        stage.start()
        assert [reason for reason in collect(config).reasons if "PIPELINE_TABLES" in reason] == []
