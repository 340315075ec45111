"""`pipeline serve` keeps a follower equal to the source: through deaths, pauses, and its own end."""

from __future__ import annotations

import os
import signal
from typing import Any

import psycopg

from tests.fixtures.served_follower import Following
from tests.fixtures.waiting import eventually


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


def test_what_is_committed_arrives_though_everything_dies(following: Following, follower_dsn: str) -> None:
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
    assert eventually(lambda: following.command("show", "reports")["lag_seqs"] == 0)
    assert following.command("show", "reports")["state"] == "following"


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


def test_it_stops_before_what_it_cannot_apply_and_goes_on_by_itself(following: Following, follower_dsn: str) -> None:
    following.command("add", "reports", "--dsn", follower_dsn, "--copy", "none", "--schema", "exists")
    write(following.source, 0)
    following.become_equal()
    following.there.execute("delete from orders where id = 5")
    following.source.execute("update orders set note = 'new' where id = 5")

    def stopped() -> dict[str, Any]:
        found: dict[str, Any] = following.command("show", "reports")
        assert found["state"] == "stopped", found
        return found

    found = eventually(stopped)
    assert "public.orders" in found["reason"]
    following.there.execute("insert into orders values (5, 's5', 'anything')")
    following.become_equal()
