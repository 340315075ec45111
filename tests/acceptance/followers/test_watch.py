"""`pipeline followers watch`: what a script reads of it each second, also where one follower is not there."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fixtures.postgres import free_port
from tests.fixtures.served_follower import SHARED, Following
from tests.fixtures.server import COMMAND, environment
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group(SHARED)


@contextmanager
def watching(following: Following, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Ended by Ctrl-C, as 130 and without a word."""
    given: dict[str, object] = {"source_dsn": following.source.info.dsn, "database_dsn": following.log.info.dsn}
    process = subprocess.Popen(
        [*COMMAND, "followers", "watch", *arguments],
        cwd=following.folder,
        env=environment(given),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said.strip()) == (130, "")
    finally:
        process.kill()
        process.communicate()


def next_look(process: subprocess.Popen[str]) -> dict[str, Any]:
    """By name."""
    assert process.stdout is not None
    found = json.loads(process.stdout.readline())
    assert found["reason"] is None, found
    return {each["name"]: each for each in found["databases"]}


def rows(of: dict[str, Any]) -> dict[str, Any]:
    return {each["table"]: each["rows"] for each in of["tables"]}


@pytest.mark.long
def test_source_and_followers_are_counted_though_one_does_not_answer(following: Following) -> None:
    following.add()
    following.log.execute(
        """
        insert into pipeline.followers (source_id, name, dsn, copy, system_identifier, database_oid, database_name,
            made_seq, seq)
        select source_id, 'away', 'host=127.0.0.1 dbname=nobody port=' || %s::text, 'none', '1', 1, 'nobody', 0, 0
        from pipeline.followers
        """,
        (free_port(),),
    )
    following.log.execute(
        """
        insert into pipeline.follower_tables (follower_id, table_oid, table_schema, table_name)
        select f.id, t.table_oid, t.table_schema, t.table_name
        from pipeline.followers f cross join pipeline.follower_tables t where f.name = 'away'
        """
    )
    with watching(following, "--json") as process:
        following.source.execute("insert into orders select i, 's' || i from generate_series(1, 700) i")

        def counted() -> None:
            look = next_look(process)
            assert list(look) == ["source", "away", "reports"]
            assert rows(look["source"]) == rows(look["reports"]) == {"public.lines": 0, "public.orders": 700}
            assert (look["reports"]["state"], look["reports"]["lag_seqs"]) == ("following", 0)
            assert look["reports"]["seq"] == look["source"]["seq"]
            assert rows(look["away"]) == {"public.lines": None, "public.orders": None}
            assert "Connection refused" in look["away"]["rows_reason"]
            assert look["away"]["lag_seqs"] >= 700

        eventually(counted)
        following.source.execute("insert into orders select i, 's' || i from generate_series(701, 900) i")
        eventually(lambda: next_look(process)["reports"]["rate"] > 0)
        following.pause()
        following.source.execute("truncate orders")

        def differs() -> None:
            look = next_look(process)
            assert (rows(look["source"])["public.orders"], rows(look["reports"])["public.orders"]) == (0, 900)
            assert (look["reports"]["state"], look["reports"]["lag_seqs"]) == ("paused", 1)
            assert look["reports"]["remedy"] == "`pipeline followers resume reports`"

        eventually(differs)

    with watching(following) as process:  # as people see it
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert next(lines).endswith(" UTC, every 1 s until Ctrl-C\n")
        eventually(lambda: next(lines).split() == ["public.orders", "0", "?", "900"])
