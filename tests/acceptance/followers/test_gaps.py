"""A slot that was lost, and followers: they get what has changed in the gap from the log, or stop before it."""

from __future__ import annotations

import psycopg
import pytest

from tests.fixtures.served_follower import Following
from tests.fixtures.server import run_command

BEFORE = "insert into orders select i, 's' || i, repeat('n', 3000) from generate_series(1, 20) i"
IN_THE_GAP = (
    "insert into orders values (51, 'new', null), (52, 'also new', null)",
    "update orders set note = 'gap' where id = 2",
    "delete from orders where id in (4, 5)",
    "update orders set id = 53 where id = 6",
    "insert into lines values (1, 1, 1.5)",
)
AFTER = (
    "update orders set note = 'after' where id in (51, 2, 53)",
    "delete from orders where id = 52",
    "insert into orders values (4, 'again', null)",
    "update lines set amount = 2",
)
"""Changes of rows that the log has not had, as it has them now or not at all."""


@pytest.fixture
def following(following_alone: Following) -> Following:
    """Its server stops, and its slot is lost."""
    return following_alone


def count(there: psycopg.Connection, query: str) -> int:
    return int(str(there.execute(query.encode()).fetchall()[0][0]))


@pytest.mark.long
def test_what_is_compared_after_a_gap_arrives(following: Following) -> None:
    following.add()
    following.source.execute(BEFORE.encode())
    following.lose_the_slot(IN_THE_GAP, AFTER, "--reread")
    following.become_equal()
    following.source.execute("update orders set note = 'later' where id > 3")
    assert following.command("wait", "reports")["ok"]
    following.become_equal()
    found = following.command("show", "reports")
    assert (found["state"], {each["state"] for each in found["tables"]}) == ("following", {"following"})


@pytest.mark.long
def test_what_is_not_compared_stops_it_before_the_epoch_until_it_is(following: Following) -> None:
    following.add()
    following.source.execute(BEFORE.encode())
    following.lose_the_slot(IN_THE_GAP, AFTER)
    found = following.state("stopped")
    assert (
        "epoch 1 of the source begins there, and what changed before it is not in the log, of public."
        in found["reason"]
    )
    assert "then the follower continues by itself: `pipeline backfill start public." in found["remedy"], found
    assert count(following.there, "select count(*) from orders") == 20
    assert found["seq"] == count(following.log, "select max(seq) from sequin_events where source_epoch = 0")
    given = {"source_dsn": following.source.info.dsn, "database_dsn": following.log.info.dsn}
    for table in ("public.orders", "public.lines"):
        done = run_command("backfill", "start", table, "--differences", folder=following.folder, **given)
        assert done.returncode == 0, done
    following.become_equal()
    assert following.command("wait", "reports")["ok"]
