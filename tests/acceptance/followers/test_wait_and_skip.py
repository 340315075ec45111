"""`pipeline followers wait` and `skip-transaction`, as users run them beside a server."""

from __future__ import annotations

import psycopg
import pytest

from tests.fixtures.served_follower import SHARED, Following
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group(SHARED)


def test_wait_names_what_has_not_begun_and_returns_when_all_is_there(following: Following) -> None:
    with psycopg.connect(following.there.info.dsn) as holder:
        holder.execute("create schema pipeline_follower")  # its applier creates this schema, and waits for it
        following.add()
        done = following.run("wait", "reports", "--timeout", "1")
        assert (done.returncode, done.stdout) == (1, "")
        assert 'follower "reports" lacks something: table public.lines is waiting' in done.stderr
        holder.rollback()
    assert following.command("wait", "reports")["followers"][0]["lacks"] is None
    for number in range(3):
        following.source.execute(
            "insert into orders select i, 's' || i from generate_series(%s::int, %s::int) i",
            (number * 1000, number * 1000 + 999),
        )
        found = following.command("wait", "reports")
        assert following.there.execute("select count(*) from orders").fetchone() == (number * 1000 + 1000,)
        assert (found["ok"], found["reason"]) == (True, None)
        assert found["seq"] <= found["followers"][0]["seq"]
    done = following.run("wait", "reports", "--timeout", "100")
    assert done.returncode == 0, done
    assert done.stdout.startswith('follower "reports" has everything that was committed before ')


@pytest.mark.long
def test_wait_says_in_one_line_why_it_ends_without(following: Following) -> None:
    following.add()
    following.command("wait", "reports")
    following.pause()
    assert following.command("wait", "reports")["ok"], "it is paused, and has everything"
    following.source.execute("insert into orders values (1, 's1')")
    done = following.run("wait", "reports")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        'pipeline: follower "reports" is paused: a user has paused it; `pipeline followers resume reports`\n'
    )
    assert following.command("wait", "reports", status=1)["reason"] in done.stderr
    following.command("resume", "reports")
    with psycopg.connect(following.there.info.dsn) as holder:
        holder.execute("lock table orders in exclusive mode")
        following.source.execute("insert into orders values (2, 's2')")
        done = following.run("wait", "reports", "--timeout", "1")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("pipeline: after 1 s ")
        assert done.stderr.count("\n") == 1
    assert following.command("wait", "reports")["ok"]
    assert "there is no follower" in following.run("wait", "reports", "other").stderr
    following.there.execute("delete from orders")
    following.source.execute("update orders set note = 'other'")
    done = following.run("wait", "reports")
    assert done.returncode == 1
    assert done.stderr.startswith('pipeline: follower "reports" is stopped: ')
    assert "public.orders" in done.stderr


def newer(following: Following, seq: int, events: int) -> list[int]:
    """The seqs after this one, once there are this many."""
    found = following.log.execute("select seq from sequin_events where seq > %s order by seq", (seq,)).fetchall()
    return [each for (each,) in found] if len(found) == events else []


def test_one_transaction_is_skipped_and_no_other(following: Following) -> None:
    following.add()
    following.source.execute("insert into orders values (1, 's1'), (2, 's2'), (3, 's3')")
    following.command("wait", "reports")
    following.there.execute("delete from orders where id = 2")
    with following.source.transaction():
        following.source.execute("update orders set note = 'skipped' where id = 1")
        following.source.execute("update orders set note = 'skipped' where id = 2")
        following.source.execute("insert into lines values (1, 1, 1)")
    following.source.execute("update orders set note = 'after' where id = 3")
    stopped = following.state("stopped")
    [first, middle, last, after] = eventually(lambda: newer(following, stopped["seq"], 4))
    for seq in (stopped["seq"], after):
        refused = following.run("skip-transaction", "reports", str(seq))
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
        assert f"the transaction of seq {first} to {last}, to which seq {seq} does not belong" in refused.stderr
        assert f"`pipeline followers skip-transaction reports {first}`" in refused.stderr
    found = following.command("skip-transaction", "reports", str(middle))
    assert (found["first_seq"], found["last_seq"], found["events"]) == (first, last, 3)
    assert found["tables"] == ["public.lines", "public.orders"]
    eventually(lambda: following.run("wait", "reports").returncode == 0)
    rows = following.there.execute("select id, note from orders order by id").fetchall()
    assert rows == [(1, None), (3, "after")]
    [(seqs, tables, reason)] = following.there.execute(
        "select array[first_seq, last_seq], tables, reason from pipeline_follower.skipped where follower = 'reports'"
    ).fetchall()
    assert (seqs, tables) == ([first, last], ["public.lines", "public.orders"])
    assert reason == stopped["reason"]
    verified = following.command("verify", "reports", status=1)
    assert {each["table"]: each["differing"] for each in verified["tables"]} == {"public.lines": 1, "public.orders": 2}


@pytest.mark.long
def test_nothing_is_skipped_of_a_follower_that_is_not_stopped(following: Following) -> None:
    following.add()
    following.source.execute("insert into orders values (1, 's1')")
    seq = following.command("wait", "reports")["seq"]
    refused = following.run("skip-transaction", "reports", str(seq))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        'pipeline: follower "reports" is following; only a stopped follower can skip the transaction that stops it\n'
    )
    following.command("pause", "reports")
    refused = following.run("skip-transaction", "reports", str(seq))
    assert "`pipeline followers resume reports`" in refused.stderr
    assert refused.returncode == 1
    assert following.there.execute("select from pipeline_follower.skipped").rowcount == 0
