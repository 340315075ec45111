"""Two million rows are read while the server is killed again and again: nothing that is done is done again."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually

ROWS, KILLS = 2_000_000, 20
MOST = 1.1
"""Times as many rows may be read at the source as the table has."""
MAKE = f"""
create table big (id bigint primary key, n int, note text, at timestamptz);
insert into big select i, i % 97, md5(i::text), '2024-01-01'::timestamptz + i * interval '1 s'
from generate_series(1, {ROWS}) i;
"""
STATE = """
    select s.state, s.ranges_done, s.ranges_all from pipeline.snapshots s where s."table" = 'public.big'"""
READ = "select seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables where relname = 'big'"


def done(log: psycopg.Connection) -> tuple[str, float]:
    try:
        row = log.execute(STATE).fetchone()
    except psycopg.errors.UndefinedTable:
        return "not there", 0.0
    return (row[0], row[1] / row[2] if row[2] else 0.0) if row else ("not there", 0.0)


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_a_killed_snapshot_goes_on_where_it_was(
    serve: Callable[..., Serving], source_dsn: str, database_dsn: str, slot_name: str, tmp_path: Path
):
    choose = random.Random(7)
    with (
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(database_dsn, autocommit=True) as log,
    ):
        source.execute(MAKE.encode())
        source.execute("vacuum analyze big")
        before = source.execute(READ).fetchone()
        kills = 0
        server = serve()
        while kills < KILLS:
            at = done(log)[1] + choose.uniform(0.1, 1.0) / KILLS
            eventually(lambda at=at: done(log)[1] >= min(at, 0.98), 120)  # type: ignore[misc]
            time.sleep(choose.uniform(0, 0.1))
            server.kill()
            kills += 1
            server = serve()
        eventually(lambda: done(log)[0] == "complete", 300)
        assert log.execute("select count(*), count(distinct record_pk) from sequin_events").fetchone() == (ROWS, ROWS)
        given: dict[str, Any] = {"source_dsn": source_dsn, "database_dsn": database_dsn, "slot": slot_name}
        source.execute("select pg_stat_force_next_flush()")
        after = source.execute(READ).fetchone()
        assert before is not None and after is not None
        read = (after[0] - before[0]) / ROWS
        print(f"{kills} kills: {read:.3f} times the rows were read")
        assert read <= MOST
        ended = run_command("verify", "--content", "--json", folder=tmp_path, **given)
        assert json.loads(ended.stdout)["differing"] == 0, ended.stdout
