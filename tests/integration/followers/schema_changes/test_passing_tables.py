"""Tables that live for seconds, and exchange names with tables that a follower has: each has its own rows there."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from pipeline.followers.running import following
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.copying import Copying
from tests.fixtures.postgres import Cluster
from tests.fixtures.schema_changes import Changed, followed_tables
from tests.fixtures.stage import Stage, databases
from tests.fixtures.waiting import eventually

SHADOW = (
    "create table $t_new (id int primary key, a text, b text, n varchar(5), c int)",
    "insert into $t_new select g, 'a', 'b', 'n', g from generate_series(1, 7) g",
)
EXCHANGE = "alter table $t rename to $t_old; alter table $t_new rename to $t"
KEPT = ("$t", "$t_old")
PASSING = {
    "exchanged, the old one kept": ((*SHADOW, "update $t set a = 'last'", EXCHANGE, "insert into $t values (8)"), KEPT),
    "exchanged without an event since": ((*SHADOW, "update $t set a = 'last'", EXCHANGE), KEPT),
    "exchanged, the old one dropped": ((*SHADOW, f"{EXCHANGE}; drop table $t_old"), ("$t",)),
    "exchanged, dropped and written": (
        (*SHADOW, EXCHANGE, "insert into $t values (8)", "drop table $t_old", "update $t set a = 'x'"),
        ("$t",),
    ),
    "exchanged, with the names of their indexes": (
        (
            "create table $t_new (id int constraint $t_new_pk primary key, a text)",
            "insert into $t_new values (1)",
            EXCHANGE,
            "alter index $t_pkey rename to $t_old_pkey; alter index $t_new_pk rename to $t_pkey",
            "insert into $t values (8)",
        ),
        KEPT,
    ),
    "exchanged twice": (
        (
            *SHADOW,
            "update $t set a = 'last'",
            EXCHANGE,
            "insert into $t values (8)",
            "drop table $t_old",
            *SHADOW,
            EXCHANGE,
            "update $t_old set a = 'old'",
        ),
        KEPT,
    ),
    "named by older events": (
        (
            "alter table $t rename to $t_x",
            "update $t_x set a = 'x'",
            "alter table $t_x rename to $t",
            "update $t set a = 'y'",
            *SHADOW,
            EXCHANGE,
            "insert into $t values (8)",
        ),
        KEPT,
    ),
    "dropped": (
        ("create table $t_gone (id int primary key)", "insert into $t_gone values (1); ", "drop table $t_gone"),
        ("$t",),
    ),
}


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    with databases(cluster, cluster, snapshot="never") as config, Stage(config) as stage:
        stage.start()
        yield stage


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower's process looks often: a test waits for it."""
    monkeypatch.setattr(following, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(following, "REPORT_SECONDS", 0.05)
    monkeypatch.setattr(following, "FIRST_DELAY", 0.1)


def become_equal(several: list[Changed]) -> None:
    """Each table of the source, which no other table of the follower writes to."""
    names = [each.named(name) for each, (_, kept) in zip(several, PASSING.values(), strict=True) for name in kept]
    several[0].become_equal_in_time(*names)
    states = [each.table_name for each in several[0].made.found.table_states]
    assert len(states) == len(set(states))


@pytest.mark.parametrize("when", ["far behind", pytest.param("at once", marks=pytest.mark.long)])
def test_exchanged_tables_have_their_own_rows(stage: Stage, cluster: Cluster, when: str) -> None:
    options = {"copy": "source", "truncate": True} if when == "far behind" else {"copy": "none"}
    with followed_tables(stage, cluster, len(PASSING), **options) as several:
        made = several[0].made
        with made.running():
            if when == "at once":
                run(several)
                become_equal(several)
            else:
                several[0].become_equal_in_time(*(each.t for each in several))
        if when == "far behind":
            run(several)
            stage.arrive()
            with made.running():
                become_equal(several)


def run(several: list[Changed]) -> None:
    for changed, (statements, _) in zip(several, PASSING.values(), strict=True):
        changed.run(*statements)


def test_new_tables_that_are_renamed_or_dropped_before_their_copy(changed: Changed) -> None:
    for name in ("$t_gone", "$t_new"):
        changed.run(f"create table {name} (id int primary key, a text)", f"insert into {name} values (1)")
    with psycopg.connect(changed.stage.config.source) as holder:
        for name in ("$t_gone", "$t_new"):
            holder.execute(changed.named(f"insert into {name} values (2)").encode())
        with changed.made.running():
            changed.stage.arrive()
            holds = f"pid {holder.info.backend_pid} "
            eventually(lambda: sum(holds in (each.reason or "") for each in changed.made.found.table_states) == 2)
            holder.execute(changed.named(f"{EXCHANGE}; drop table $t_gone").encode())
            holder.commit()
            changed.run("insert into $t values (3)", "update $t_old set a = 'old'")
            changed.become_equal_in_time(*map(changed.named, KEPT))
            assert {each.table_name for each in changed.made.found.table_states} == {*map(changed.named, KEPT)}


@pytest.mark.parametrize("event", [False, True], ids=["without an event", "with one"])
def test_a_table_that_is_made_again_has_no_column_of_before(stage: Stage, cluster: Cluster, event: bool) -> None:
    with followed_tables(stage, cluster, 1, copy="source", truncate=True) as [changed]:
        changed.run("alter table $t add c int not null default 7, add d int not null default 8")
        changed.run("update $t set c = 1" if event else "select")
        stage.arrive()
        with changed.made.running():
            changed.become_equal_in_time()
            changed.run(
                "drop table $t", "create table $t (id int primary key, d text)", "insert into $t values (1, 'd')"
            )
            changed.become_equal_in_time()


def test_a_table_that_is_made_again_twice_before_its_copy(changed: Changed) -> None:
    made, again = changed.made, "create table $t (id int primary key, share int, a int)"
    changed.run("drop table $t", again, "insert into $t values (1, 1, 1)")
    head = changed.stage.arrive()
    with psycopg.connect(changed.stage.config.source) as holder:
        holder.execute(changed.named("insert into $t values (2, 2, 2)").encode())
        with made.running():
            holds = f"pid {holder.info.backend_pid} "
            eventually(lambda: any(holds in (each.reason or "") for each in made.found.table_states))
            eventually(lambda: reached(made) >= head)
            holder.execute(changed.named(f"drop table $t; {again}").encode())
            holder.commit()
            publish_new_tables(changed.stage.config)
            changed.run("insert into $t values (3, 3, 3)")
            changed.become_equal_in_time()


def reached(made: Copying) -> int:
    """The seq that the follower is at, by what it says itself."""
    query = "select seq from pipeline_follower.position where follower = %s"
    [(seq,)] = made.look.execute(query, [made.name]).fetchall()
    return int(seq)


def test_tables_that_wrote_to_one_are_copied(changed: Changed) -> None:
    """As a follower of an older server left them."""
    made, old, new = changed.made, *map(changed.named, ("$t_old", "$t_new"))
    with made.running():
        changed.run("create table $t_new (like $t including all)", SHADOW[1].replace(", g from", " from"))
        changed.become_equal_in_time(changed.t, new)
    changed.run(EXCHANGE, "insert into $t values (8)", "update $t_old set a = 'old'")
    made.look.execute("delete from pipeline_follower.forms where follower = %s", [made.name])
    query = "update pipeline.follower_tables set table_name = %s where table_name = %s"
    changed.stage.log.execute(query, [changed.t, new])
    made.look.execute(f"drop table {new}; alter index {changed.t}_pkey rename to {new}_pkey".encode())
    with made.running():
        changed.become_equal_in_time(changed.t, old)
