"""`pipeline serve` keeps a follower equal to the source: through deaths, pauses, and its own end."""

from __future__ import annotations

import os
import signal
from typing import Any

import psycopg
import pytest

from tests.fixtures.served_follower import SHARED, Following
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group(SHARED)


def write(source: psycopg.Connection, first: int) -> None:
    """Some transactions of every kind, of which one swaps two unique values."""
    with source.transaction():
        source.execute(
            "insert into orders select i, 's' || i, repeat('n', 3000) from generate_series(%s::int, %s::int) i",
            (first, first + 9),
        )
        source.execute("insert into lines select %s::int, i, i * 1.5 from generate_series(1, 5) i", (first,))
    with source.transaction():
        source.execute("update orders set state = 'moved' where id = %s", (first,))
        source.execute("update orders set state = 's' || %s::text where id = %s", (first, first + 1))
        source.execute("update orders set state = 's' || %s::text where id = %s", (first + 1, first))
    source.execute("delete from orders where id = %s", (first + 2,))
    source.execute("update lines set place = place + 100 where order_id = %s", (first,))


def test_what_is_committed_arrives_though_everything_dies(following_alone: Following, follower_dsn: str) -> None:
    following = following_alone
    write(following.source, 0)
    added = following.command("add", "reports", "--dsn", follower_dsn, "--copy", "log", "--schema", "exists")
    assert added["name"] == "reports"
    following.become_equal()
    for number in range(1, 4):
        os.kill(following.applier(), signal.SIGKILL)
        write(following.source, 100 * number)
        following.become_equal()
    following.server.kill()
    write(following.source, 1000)
    following.server = following.start(snapshot="never")
    following.become_equal()
    following.state("following")
    eventually(lambda: following.command("show", "reports")["lag_seqs"] == 0)


@pytest.mark.long
def test_a_pause_holds_it_and_the_rest_comes_after(following: Following, follower_dsn: str) -> None:
    following.command("add", "reports", "--dsn", follower_dsn, "--copy", "none", "--schema", "exists")
    write(following.source, 0)
    following.become_equal()
    following.pause()
    before = following.there.execute("select count(*) from orders").fetchall()
    write(following.source, 100)
    eventually(lambda: following.command("show", "reports")["lag_seqs"] > 0)
    assert following.there.execute("select count(*) from orders").fetchall() == before
    following.command("resume", "reports")
    following.become_equal()


def test_it_stops_or_waits_says_why_and_goes_on_by_itself(following: Following) -> None:
    following.add()
    write(following.source, 0)
    following.become_equal()
    following.there.execute("delete from orders where id = 5")
    following.source.execute("update orders set note = 'new' where id = 5")
    found = following.state("stopped")
    assert "public.orders" in found["reason"]
    following.there.execute("insert into orders values (5, 's5', 'anything')")
    following.become_equal()
    with psycopg.connect(following.there.info.dsn) as reader:
        reader.execute("select from orders")
        following.source.execute("truncate orders")
        found = following.state("waiting")
        assert f"waits for pid {reader.info.backend_pid} (" in found["reason"]
        assert f"pg_terminate_backend({reader.info.backend_pid})" in found["remedy"]
    following.become_equal()
    following.state("following")


def test_a_copy_goes_on_after_its_process_was_killed(following: Following, follower_dsn: str) -> None:
    write(following.source, 0)
    following.source.execute("insert into orders select n, 's' || n from generate_series(1000, 50000) n")
    with psycopg.connect(follower_dsn) as other:
        # COPY waits for what becomes of its key; `lines` was copied before.
        other.execute("insert into orders values (40000, 'of somebody else')")
        following.command("add", "reports", "--dsn", follower_dsn, "--schema", "exists")
        eventually(lambda: copy_waits(following.there))
        [finished] = copies(following.there)
        write(following.source, 100)
        assert following.command("show", "reports")["state"] == "copying"
        os.kill(following.applier(), signal.SIGKILL)
        other.rollback()
    following.become_equal()
    assert finished in copies(following.there)
    write(following.source, 200)
    following.become_equal()
    states = {each["table"]: each["state"] for each in following.state("following")["tables"]}
    assert states == {"public.orders": "following", "public.lines": "following"}


@pytest.mark.long
def test_a_server_that_is_stopped_during_a_copy_goes_on_with_it(following_alone: Following, follower_dsn: str) -> None:
    following = following_alone
    write(following.source, 0)
    with psycopg.connect(following.source.info.dsn) as holder:
        holder.execute("lock table orders in access exclusive mode")
        following.command("add", "reports", "--dsn", follower_dsn, "--schema", "exists")
        [finished] = eventually(lambda: copies(following.there))
        os.kill(following.server.process.pid, signal.SIGINT)
        assert following.server.process.wait(120) == 0
        holder.rollback()
    write(following.source, 100)
    following.server = following.start(snapshot="never")
    following.become_equal()
    assert finished in copies(following.there)


def copy_waits(there: psycopg.Connection) -> bool:
    """Whether a COPY waits for a lock at the follower."""
    query = """
        select from pg_stat_activity
        where query like 'copy %' and wait_event_type = 'Lock' and datname = current_database()
    """
    return there.execute(query).rowcount > 0


def copies(there: psycopg.Connection) -> list[tuple[int, str, Any]]:
    """Those that are made."""
    if there.execute("select to_regclass('pipeline_follower.copies')").fetchall() == [(None,)]:
        return []
    query = "select table_oid, snapshot, copied_at from pipeline_follower.copies where snapshot is not null"
    return there.execute(query).fetchall()
