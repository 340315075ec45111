"""After a gap, tables whose deletions the log cannot know are copied again; without `--reread` all may be."""

from __future__ import annotations

import psycopg
import pytest

from tests.fixtures.served_follower import Following
from tests.fixtures.waiting import eventually


@pytest.fixture
def following(following_alone: Following) -> Following:
    """Its server stops, and its slot is lost."""
    return following_alone


@pytest.fixture
def prepared() -> tuple[str, str]:
    """One without a key."""
    return "create table heap (a int)", "create table heap (a int)"


@pytest.mark.long
def test_a_table_without_a_key_is_copied_anew(following: Following) -> None:
    source = following.source
    following.add()
    source.execute("insert into heap select n from generate_series(1, 9) n")
    following.lose_the_slot(["delete from heap where a = 2"], ["insert into heap values (10)"], "--reread")
    eventually(lambda: heap(following.there) == heap(source))
    assert heap(source) == [1, 3, 4, 5, 6, 7, 8, 9, 10]
    assert following.command("wait", "reports")["ok"]

    following.lose_the_slot(["delete from heap where a = 3"], ["insert into heap values (11)"])
    stopped = following.state("stopped")
    assert "epoch 2 of the source begins there" in stopped["reason"]
    assert "`pipeline followers resync reports public.orders public.lines public.heap`" in stopped["remedy"]
    following.command("resync", "reports", "*")
    assert following.command("wait", "reports")["ok"]
    assert heap(following.there) == heap(source)
    source.execute("insert into heap values (12)")
    assert following.command("wait", "reports")["ok"]
    assert heap(following.there) == [1, 4, 5, 6, 7, 8, 9, 10, 11, 12]


def heap(connection: psycopg.Connection) -> list[int]:
    return [a for (a,) in connection.execute("select a from heap order by a").fetchall()]
