"""A row whose JSON text is longer than Postgres can keep: its place and key are in the log, its values are not."""

from __future__ import annotations

import pytest

from pipeline.config import settings
from tests.fixtures.stage import Stage


@pytest.mark.long
def test_a_row_of_over_a_gigabyte_as_json_is_parked_in_its_place(source_dsn: str, database_dsn: str, slot_name: str):
    """190 MB of control characters, each of which takes six bytes."""
    config = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)
    with Stage(config, on_poison="park") as stage:
        stage.run("create table t (id int primary key, v text)")
        stage.start()
        stage.run("insert into t values (1, 'before')")
        stage.run("insert into t values (2, repeat(chr(1), 190000000))")
        stage.run("insert into t values (3, 'behind')")
        stage.arrive()
        written = "select record_pk, metadata from public.sequin_events where source_table_name = 't' order by seq"
        assert stage.log.execute(written).fetchall() == [("1", None), ("2", {"parked": 1}), ("3", None)]
        letters = stage.log.execute("select cause, sqlstate from pipeline.dead_letters").fetchall()
        assert letters[0][0].startswith("a row of 1,140,000,") and letters[0][1] == "54000"
