"""`pipeline followers resync`, as users run it beside a server, whose processes die meanwhile."""

from __future__ import annotations

import os
import signal

import psycopg
import pytest

from tests.fixtures.served_follower import SHARED, Following
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group(SHARED)


@pytest.mark.long
def test_a_table_is_copied_anew_though_everything_dies(following: Following) -> None:
    """In each phase: it waits for a lock at the source; for one at the follower, with all rows read."""
    source, there = following.source, following.there
    following.add()
    source.execute("insert into orders select n, 's' || n, repeat('n', 500) from generate_series(1, 3000) n")
    source.execute("insert into lines values (1, 1, 1)")
    following.command("wait", "reports")
    there.execute("delete from orders where id % 3 = 0")
    there.execute("update orders set note = 'theirs' where id % 5 = 0")
    verified = following.run("verify", "reports")
    assert verified.returncode == 1
    assert "`pipeline followers resync reports public.orders`" in verified.stdout

    with psycopg.connect(there.info.dsn) as user:
        with psycopg.connect(source.info.dsn) as holder:
            holder.execute("lock table orders in access exclusive mode")
            asked = following.command("resync", "reports", "public.ord*")
            assert (asked["tables"], asked["copying"]) == (["public.orders"], [])
            eventually(lambda: f"pid {holder.info.backend_pid} " in (table(following, "public.orders")["reason"] or ""))
            assert following.command("resync", "reports", "public.orders")["copying"] == ["public.orders"]
            os.kill(following.applier(), signal.SIGKILL)
            source.execute("insert into lines values (2, 2, 2)")
            eventually(lambda: there.execute("select from lines").rowcount == 2)
            assert following.command("show", "reports")["state"] == "copying"
            user.execute("update orders set state = 'theirs' where id = 5")
        eventually(lambda: copier_waits(there))
        source.execute("update orders set note = 'meanwhile' where id <= 100")
        killed = following.applier()
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: following.applier() != killed and copier_waits(there) >= 1)
        source.execute("insert into lines values (3, 3, 3)")
        eventually(lambda: there.execute("select from lines").rowcount == 3)
    following.command("wait", "reports")
    following.become_equal()
    assert following.command("verify", "reports")["ok"]
    assert {each["state"] for each in following.command("show", "reports")["tables"]} == {"following"}


def table(following: Following, name: str) -> dict[str, str | None]:
    """What `show` says of one."""
    found: dict[str, dict[str, str | None]] = {
        each["table"]: each for each in following.command("show", "reports")["tables"]
    }
    return found[name]


def copier_waits(there: psycopg.Connection) -> int:
    """How many copies wait for a lock at the follower."""
    query = """
        select from pg_stat_activity
        where application_name = 'pipeline copier' and wait_event_type = 'Lock' and datname = current_database()
    """
    return there.execute(query).rowcount


@pytest.mark.long
def test_what_cannot_be_copied_is_refused_and_what_had_stopped_it_is_not(following: Following) -> None:
    following.add()
    following.state("following")
    refused = following.run("resync", "reports", "public.orders", "public.nothing")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        'pipeline: follower "reports" has no table public.nothing; it has public.lines, public.orders\n'
    )
    assert "there is no follower" in following.run("resync", "other", "public.orders").stderr
    following.source.execute("insert into orders values (1, 's1')")
    following.command("wait", "reports")
    following.there.execute("delete from orders")
    following.source.execute("update orders set note = 'other'")
    stopped = following.state("stopped")
    assert stopped["remedy"] == "`pipeline followers resync reports public.orders`"
    said = following.run("resync", "reports", "public.orders", "public.lines")
    assert said.stdout == (
        'follower "reports" copies public.orders, public.lines again, and applies no event after seq '
        f"{stopped['seq']} to them until the copy is complete; `pipeline followers wait reports` waits for it\n"
    )
    following.command("wait", "reports")
    following.become_equal()
