"""Partitions with rows join and leave a followed table: beside a server, as users see it."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest

from tests.fixtures.served_follower import Following
from tests.fixtures.waiting import eventually

PARTED = """
create table parted (id int, area text, note text, primary key (area, id)) partition by list (area);
create table parted_a partition of parted for values in ('a');
create table parted_rest partition of parted default;
"""


@pytest.fixture
def following(following_alone: Following) -> Following:
    """Its server also reads the rows that tables have when they join."""
    return following_alone


@pytest.fixture
def prepared() -> tuple[str, str]:
    return PARTED, PARTED


@pytest.fixture
def snapshot() -> str:
    return "initial"


def rows(connection: psycopg.Connection) -> list[tuple[Any, ...]]:
    return connection.execute("select * from parted order by area, id").fetchall()


def wait(following: Following) -> None:
    """As users do: then it has everything."""
    done = following.run("wait", "reports", "--timeout", "100")
    assert done.returncode == 0, done.stderr
    assert rows(following.there) == rows(following.source)


def begun(following: Following, *arguments: str) -> None:
    following.add(*arguments)
    following.source.execute("insert into parted values (1, 'a', 'x'), (2, 'c', 'x')")
    wait(following)


@pytest.mark.long
def test_what_is_attached_detached_and_dropped(following: Following) -> None:
    begun(following)
    run = following.source.execute
    run("create table parted_b (like parted including all)")
    run("insert into parted_b select n, 'b', 'x' from generate_series(1, 500) n")
    run("alter table parted attach partition parted_b for values in ('b')")
    run("update parted set note = 'y' where id = 7")
    wait(following)
    with following.source.transaction():  # as pg_partman moves rows
        run("create table parted_c (like parted including all)")
        run(
            "with moved as (delete from parted_rest where area = 'c' returning *)"
            " insert into parted_c select * from moved"
        )
        run("alter table parted attach partition parted_c for values in ('c')")
    wait(following)
    run("alter table parted detach partition parted_b")
    run("insert into parted_b values (501, 'b', 'z')")
    wait(following)
    run("alter table parted attach partition parted_b for values in ('b')")
    wait(following)
    run("drop table parted_b")
    wait(following)
    shown = eventually(lambda: [each for each in following.command("show", "reports")["tables"] if each["reason"]])
    assert [each["table"] for each in shown] == ["public.parted"]
    assert "public.parted_b is a separate table here" in shown[0]["reason"]
    run("truncate parted_a")
    wait(following)


def test_with_ddl_stop_wait_says_what_stays(following: Following) -> None:
    begun(following, "--ddl", "stop")
    following.source.execute("alter table parted detach partition parted_a")
    done = following.run("wait", "reports", "--timeout", "100")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        'pipeline: follower "reports": table public.parted keeps rows of partition public.parted_a, which the source'
        " has no longer, as --ddl is stop; detach it there"
    )
    following.there.execute("alter table parted detach partition parted_a")
    wait(following)
    again = httpx.post(
        following.server.url("/v1/followers/reports/resync"), json={"tables": ["public.parted"]}, timeout=60
    )
    assert (again.status_code, again.json()["tables"]) == (202, ["public.parted"])
    wait(following)


@pytest.mark.long
def test_an_undivided_follower_keeps_departed_rows_until_compared(following: Following) -> None:
    following.there.execute(
        "drop table parted; create table parted (id int, area text, note text, primary key (area, id))"
    )
    begun(following, "--tables", "public.parted")
    following.source.execute("alter table parted detach partition parted_a")
    done = following.run("wait", "reports", "--timeout", "100")
    assert done.returncode == 1
    assert (
        "keeps rows of partition public.parted_a, which the source has no longer; `pipeline followers resync"
        in done.stderr
    )
    following.command("resync", "reports", "public.parted")
    wait(following)
