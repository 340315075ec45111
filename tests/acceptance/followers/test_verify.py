"""`pipeline followers verify`: what differs between a follower and its source is found, and nothing else."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fixtures.background import BackgroundThread
from tests.fixtures.served_follower import SHARED, Following
from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group(SHARED)

ROWS, PLANTED = 25_000, 1_000
"""Several parts; only the test writes rows below `PLANTED`."""
MANY = 1_000_000
KINDS = "id int primary key, note text, f float8, doc json, n numeric, flag bool"


class Writer(BackgroundThread):
    """Writes rows of `kinds` and `by_label` at the source: new ones, other values, other keys, and takes some away."""

    def __init__(self, dsn: str, number: int) -> None:
        super().__init__()
        self._dsn, self._random, self._number = dsn, random.Random(number), number

    def work(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as source:
            step = 0
            while not self.stopped.is_set():
                step += 1
                one, other = sorted(self._random.randrange(PLANTED, ROWS) for _ in range(2))
                with source.transaction():
                    source.execute("update kinds set note = %s, f = random() where id = %s", (f"n{step}", one))
                    source.execute("delete from kinds where id = %s", (other,))
                    source.execute("insert into kinds (id, note) values (%s, 'back') on conflict do nothing", (other,))
                    new = ROWS + self._number * 1_000_000 + step
                    source.execute("insert into kinds (id) values (%s)", (new,))
                    source.execute("update kinds set id = -id where id = %s", (new - 5,))
                    source.execute("update by_label set note = %s where place = %s", (f"n{step}", one))
                self.stopped.wait(0.02)


@pytest.fixture
def prepared() -> tuple[str, str]:
    """The follower has its own column, and another order of labels."""
    tables = f"""create table kinds ({KINDS}); create table heap (a int, b text);
        create table by_label (label label, place int, note text, primary key (label, place))"""
    return (
        f"create type label as enum ('x', 'a', 'm'); {tables}",
        f"create type label as enum ('a', 'm', 'x'); {tables}; alter table kinds add own text default 'mine'",
    )


@pytest.fixture
def written(following: Following) -> Iterator[Following]:
    """Both sides have the same rows, while two writers go on."""
    following.add("--tables", "public.kinds, public.by_label")
    following.source.execute(
        """insert into kinds select i, 'note ' || i, i, '{"a": 1, "b": 2}', 1.50, true from generate_series(0, %s) i""",
        (ROWS - 1,),
    )
    following.source.execute(
        "insert into by_label select (array['x', 'a', 'm']::label[])[1 + i %% 3], i, '' from generate_series(0, %s) i",
        (ROWS - 1,),
    )
    following.command("wait", "reports")
    dsn = following.source.info.dsn
    with Writer(dsn, 1), Writer(dsn, 2):
        yield following


def plant(there: psycopg.Connection) -> dict[str, tuple[str, list[str]]]:
    """Differences of every kind, each in its own row; by key, what verify says of each."""
    for statement in (
        "delete from kinds where id = 1",
        "insert into kinds (id) values (-7000000)",
        "update kinds set note = 'other' where id = 3",
        "update kinds set note = note || ' ' where id = 4",
        "update kinds set f = '-0' where id = 0",
        """update kinds set doc = '{"b": 2, "a": 1}' where id = 6""",
        "update kinds set n = 1.5 where id = 7",
        "update kinds set note = null where id = 8",
        "update kinds set flag = false, n = null where id = 9",
        "update kinds set own = 'ignored' where id = 10",
        "delete from kinds where id = 999",
    ):
        there.execute(statement.encode())
    return {
        "1": ("missing", []),
        "-7000000": ("extra", []),
        "3": ("different", ["note"]),
        "4": ("different", ["note"]),
        "0": ("different", ["f"]),
        "6": ("different", ["doc"]),
        "7": ("different", ["n"]),
        "8": ("different", ["note"]),
        "9": ("different", ["n", "flag"]),
        "999": ("missing", []),
    }


def repair(there: psycopg.Connection) -> None:
    for statement in (
        "delete from kinds where id in (-7000000, 0, 3, 4, 6, 7, 8, 9)",
        """insert into kinds select i, 'note ' || i, i, '{"a": 1, "b": 2}', 1.50, true
        from unnest(array[0, 1, 3, 4, 6, 7, 8, 9, 999]) i""",
    ):
        there.execute(statement.encode())


def differences(found: dict[str, Any], name: str) -> dict[str, tuple[str, list[str]]]:
    [table] = [each for each in found["tables"] if each["table"] == name]
    assert table["differing"] == len(table["differences"])
    return {", ".join(each["key"]): (each["kind"], each["columns"]) for each in table["differences"]}


@pytest.mark.long
def test_planted_differences_are_found_and_nothing_else_while_others_write(written: Following) -> None:
    found = written.command("verify", "reports")
    assert (found["ok"], found["differing"], found["unsettled"]) == (True, 0, 0)
    assert [each["state"] for each in found["tables"]] == ["equal", "equal"]
    planted = plant(written.there)
    written.there.execute("update by_label set note = ' ' where place = 5")
    written.there.execute("delete from by_label where place = 6")
    found = written.command("verify", "reports", status=1)
    assert differences(found, "public.kinds") == planted
    assert differences(found, "public.by_label") == {"m, 5": ("different", ["note"]), "x, 6": ("missing", [])}
    assert (found["differing"], found["unsettled"]) == (12, 0)
    shown = written.run("verify", "reports", "public.by_label")
    assert shown.returncode == 1
    assert "2 differences, through " in shown.stdout
    assert "missing" in shown.stdout
    repair(written.there)
    found = written.command("verify", "reports", "public.kinds")
    assert (found["ok"], [each["table"] for each in found["tables"]]) == (True, ["public.kinds"])
    assert found["rows"] >= ROWS - 2
    assert found["seq"] > 0


@pytest.mark.long
def test_rows_without_a_key_are_compared_all_together(following: Following) -> None:
    following.add("--tables", "public.heap")
    following.source.execute("insert into heap select i % 7, 'b' from generate_series(1, 500) i")
    following.command("wait", "reports")
    found = following.command("verify", "reports", "heap")
    assert (found["ok"], found["rows"]) == (True, 500)
    following.there.execute("insert into heap values (0, 'b')")
    found = following.command("verify", "reports", status=1)
    assert differences(found, "public.heap") == {"": ("different", [])}
    following.there.execute("delete from heap where ctid = (select max(ctid) from heap)")
    assert following.command("verify", "reports")["ok"]


def test_what_cannot_be_compared_is_said(following: Following) -> None:
    following.add("--tables", "public.lines, public.orders")
    following.source.execute("insert into orders values (1, 's1')")
    following.command("wait", "reports")
    refused = following.run("verify", "reports", "public.nothing")
    assert refused.returncode == 2
    assert "the source has no table public.nothing" in refused.stderr
    following.there.execute("alter table lines rename to gone")
    found = following.command("verify", "reports")
    assert {each["table"]: each["state"] for each in found["tables"]} == {
        "public.lines": "refused",
        "public.orders": "equal",
    }
    assert not following.command("verify", "reports", "public.lines", status=1)["ok"]
    following.pause()
    following.source.execute("insert into orders values (2, 's2')")
    refused = following.run("verify", "reports")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert 'follower "reports" is paused at seq ' in refused.stderr
    assert "`pipeline followers resume reports`" in refused.stderr


def test_names_and_columns_are_compared_with_those_in_the_log(following: Following) -> None:
    following.add("--tables", "public.lines, public.orders")
    following.source.execute("insert into orders values (1, 's1'); insert into lines values (1, 1, 1.5)")
    following.command("wait", "reports")
    following.source.execute("alter table lines drop column amount; insert into lines values (2, 1)")
    following.source.execute("alter table orders rename note to remark; alter table orders add more int")
    following.there.execute("alter table orders add own text")
    following.command("wait", "reports")
    found = {each["table"]: each for each in following.command("verify", "reports")["tables"]}
    assert {name: (each["state"], each["form"]) for name, each in found.items()} == {
        "public.lines": ("equal", None),
        "public.orders": ("equal", None),
    }
    altered = "altered at the source since its newest event: got column more, got column remark, lost column note"
    assert found["public.orders"]["altered"] == altered

    def differs(statement: str, back: str, table: str, said: str) -> None:
        following.there.execute(statement.encode())
        verified = following.command("verify", "reports", table, status=1)
        assert (verified["ok"], verified["tables"][0]["form"]) == (False, said)
        assert f"table {table} {said}; " in following.command("wait", "reports", status=1)["reason"]
        following.there.execute(back.encode())

    dropped = "has a column amount, which was dropped at the source"
    differs("alter table lines add amount int", "alter table lines drop amount", "public.lines", dropped)
    lacking = "has no column state, which it has in the log"
    differs("alter table orders rename state to s", "alter table orders rename s to state", "public.orders", lacking)
    back = "alter table o rename to orders"
    differs("alter table orders rename to o", back, "public.orders", "is not there")
    following.command("wait", "reports")


def test_a_copy_may_have_a_name_that_no_event_tells(following: Following) -> None:
    for side in (following.source, following.there):
        side.execute("create table other (id serial primary key)")
    following.add("--tables", "public.lines, public.orders, public.other")
    following.source.execute("insert into orders values (1, 's1'); insert into lines values (1, 1, 1.5)")
    following.command("wait", "reports")

    def wait(status: int = 0) -> Any:
        following.source.execute("insert into other default values")  # the position is past the copies
        return following.command("wait", "reports", status=status)["reason"]

    following.source.execute("alter table lines rename to details")
    following.command("resync", "reports", "public.lines")
    wait()
    exchanged = "alter table orders rename to x; alter table details rename to orders; alter table x rename to details"
    following.source.execute(exchanged.encode())
    following.command("resync", "reports", "public.orders", "public.details")
    wait()
    assert following.there.execute("select amount from orders").fetchall() == [(Decimal("1.50"),)]
    assert following.there.execute("select state from details").fetchall() == [("s1",)]
    found = following.command("verify", "reports")["tables"]
    assert {(each["state"], each["form"], each["altered"]) for each in found} == {("equal", None, None)}
    following.source.execute("alter table other add n int")
    wait()
    following.source.execute("alter table other rename to former; create table other (id serial primary key)")

    def is_moved() -> bool:
        following.source.execute("insert into other default values")
        return following.there.execute("select to_regclass('former')").fetchone() != (None,)

    eventually(is_moved)
    following.there.execute("create table other (id serial primary key)")
    following.source.execute("drop table former")
    wait()
    following.there.execute("alter table orders rename to o")
    assert "table public.orders is not there; " in wait(status=1)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_million_rows_are_compared_in_less_time_than_they_were_copied(
    following: Following, follower_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten planted differences are found under four writers, and none else; none is left once they were copied again."""
    monkeypatch.setattr("tests.acceptance.followers.test_verify.ROWS", MANY)
    fill = (
        """insert into kinds select i, 'note ' || i, i, '{"a": 1, "b": 2}', 1.50, true from generate_series(0, %s) i"""
    )
    following.source.execute(fill, (MANY - 1,))
    tables = ("--tables", "public.kinds, public.by_label")
    began = time.monotonic()
    following.command("add", "reports", "--dsn", follower_dsn, "--copy", "source", "--schema", "exists", *tables)
    eventually(lambda: following.command("show", "reports")["state"] == "following", 300)
    copied = time.monotonic() - began
    dsn = following.source.info.dsn
    with Writer(dsn, 1), Writer(dsn, 2), Writer(dsn, 3), Writer(dsn, 4):
        following.command("wait", "reports")
        planted = plant(following.there)
        assert len(planted) == 10
        began = time.monotonic()
        found = following.command("verify", "reports", "public.kinds", status=1)
        compared = time.monotonic() - began
        assert differences(found, "public.kinds") == planted
        assert found["unsettled"] == 0
        following.command("resync", "reports", "public.kinds")
        eventually(lambda: following.command("show", "reports")["state"] == "following", 300)
        found = following.command("verify", "reports", "public.kinds")
        assert (found["ok"], found["unsettled"]) == (True, 0)
    print(f"copied in {copied:.1f} s, compared in {compared:.1f} s")
    assert compared < copied


@pytest.mark.long
def test_rows_and_columns_that_are_not_published_are_left_out(
    serve: Callable[..., Serving],
    source_dsn: str,
    database_dsn: str,
    follower_dsn: str,
    tmp_path: Path,
    slot_name: str,
) -> None:
    with (
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(database_dsn, autocommit=True) as log,
        psycopg.connect(follower_dsn, autocommit=True) as there,
    ):
        source.execute("create table people (id int primary key, name text, secret text)")
        source.execute("create publication chosen for table people (id, name) where (id < 100)")
        there.execute("create table people (id int primary key, name text)")
        following = Following(
            serve, serve(snapshot="never", publication="chosen"), source, log, there, tmp_path, slot_name
        )
        following.add()
        source.execute("insert into people select i, 'name', 'secret' from generate_series(1, 200) i")
        following.command("wait", "reports")
        assert following.command("verify", "reports")["rows"] == 99
        there.execute("insert into people values (150, 'name')")
        found = following.command("verify", "reports", status=1)
        assert differences(found, "public.people") == {"150": ("extra", [])}
