"""A session is made whole or not at all, counts right beside others, and takes nothing that others need."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count, cycle

import psycopg
import pytest

from pipeline.errors import PipelineError, SessionRefusedError, SessionsFullError, SourceUnfitError
from pipeline.postgres import queries
from pipeline.wires.pgdeltastream.sessions import creation, exporting, store
from tests.fixtures.postgres import Cluster, on_old_and_new
from tests.fixtures.session_site import Site, connected, site_at
from tests.fixtures.waiting import eventually


@on_old_and_new
def test_a_session_has_a_slot_a_snapshot_and_a_position(any_site: Site):
    any_site.run("create table made_before (id int primary key)")
    made = any_site.create()
    slot = any_site.source.execute(
        "select plugin, temporary, two_phase, active, (confirmed_flush_lsn - '0/0')::bigint"
        " from pg_replication_slots where slot_name = %s",
        (made.session.slot,),
    ).fetchone()
    assert slot == ("pgoutput", False, False, False, made.session.position)
    assert made.session.state == "ready"
    assert made.session.made_after <= (made.session.position or 0)
    published = any_site.source.execute("select from pg_publication_tables where tablename = 'made_before'")
    assert published.rowcount > 0
    walsenders = (
        "select application_name, state from pg_stat_activity where backend_type = 'walsender'"
        " and datname = current_database()"
    )
    ours = [(f"pipeline session {made.session.slot}", "idle in transaction")]
    eventually(lambda: any_site.source.execute(walsenders).fetchall() == ours)  # an earlier one may be just ending
    before = made.alive
    made.close()
    assert (before, made.alive) == (True, False)
    any_site.run("drop table made_before")


def test_a_standby_may_copy_the_slot_of_a_session(site: Site):
    made = site.create()
    query = "select failover from pg_replication_slots where slot_name = %s"
    assert site.source.execute(query, [made.session.slot]).fetchall() == [(True,)]


def test_names_that_somebody_has_are_passed_over(site: Site):
    site.run("select pg_create_logical_replication_slot('delta_foreign', 'pgoutput')")
    first = site.create(cycle(["delta_foreign", "delta_pet1"]).__next__)
    second = site.create(cycle(["delta_foreign", "delta_pet1", "delta_pet2"]).__next__)
    assert (first.session.slot, second.session.slot) == ("delta_pet1", "delta_pet2")
    with pytest.raises(SessionRefusedError, match="none of 50 names for a slot was free"):
        site.create(lambda: "delta_foreign")


def test_a_name_that_is_taken_meanwhile_stays_whose_it_is(site: Site):
    names = count()

    def name() -> str:
        slot = f"delta_few{next(names)}"
        if slot == "delta_few0":  # after the names were looked at
            site.run(f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        return slot

    assert site.create(name).session.slot == "delta_few1"
    assert site.slots() == {"delta_few0", "delta_few1"}
    assert [(slot, state) for slot, state, _ in site.sessions()] == [("delta_few0", "ended"), ("delta_few1", "ready")]
    site.enforce()
    assert site.slots() == {"delta_few0", "delta_few1"}


def test_an_abandoned_session_makes_room_for_its_own_address(site: Site, caplog: pytest.LogCaptureFixture):
    """Each by its own time: used for nothing, read, streamed, and of another address."""
    unused, read, streamed = (site.create(sessions_max=4, address="10.0.0.1") for _ in range(3))
    other = site.create(sessions_max=4, address="10.0.0.2")
    store.touch(site.log, read.session.id)
    claim = queries.statement("wires.pgdeltastream.sessions", "claim_session")
    site.log.execute(claim, {"id": streamed.session.id, "reader": None})
    kept = {unused: -60, read: 11, other: 61, streamed: 61}
    for each, seconds in kept.items():
        site.age(each, seconds)
    until = r"(delta_\w+ is kept until 20\d\d-\S+ \S+ \w+(, |$)){4}"
    with pytest.raises(SessionsFullError, match=rf"PIPELINE_SESSIONS_MAX = 4 is reached: {until}"):
        site.create(sessions_max=4, address="10.0.0.1")
    caplog.clear()
    for each, seconds in {unused: 71, read: 50, other: 240, streamed: 240}.items():
        site.age(each, seconds)
    for expected in kept:
        made = site.create(sessions_max=4, address="10.0.0.1")
        assert not expected.alive
        made.close()
        site.age(made, -60)
    (warning, *_) = [record for record in caplog.records if "session" in record.__dict__]
    assert (warning.levelname, warning.__dict__["action"]) == ("WARNING", "session.ended")
    why = "it made room for another session: no client had used it for 10 s"
    assert (unused.session.slot, "ended", why) in site.sessions()


def test_two_that_come_at_once_count_each_other(site: Site):
    def create(_: int) -> bool:
        try:
            site.create(sessions_max=2)
        except SessionRefusedError:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(create, range(4))) == [False, False, True, True]
    assert len(site.slots()) == 2


@pytest.mark.parametrize("free", [0, 1])
def test_one_slot_stays_free_for_the_worker(site: Site, free: int):
    try:
        taken = count()
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
            while True:
                site.run(f"select pg_create_physical_replication_slot('physical_{next(taken)}')")
        for each in range(free):
            site.run(f"select pg_drop_replication_slot('physical_{each}')")
        with pytest.raises(
            SessionRefusedError, match=f"the source has {free} of its max_replication_slots = 50 free: "
        ):
            site.create()
        for each in range(free, 2):
            site.run(f"select pg_drop_replication_slot('physical_{each}')")
        abandoned = site.create(address="10.0.0.1")
        with pytest.raises(
            SessionsFullError, match=rf"max_replication_slots.*: {abandoned.session.slot} is kept until "
        ):
            site.create(address="10.0.0.1")
        site.age(abandoned, 11)
        site.create(address="10.0.0.1")
        assert not abandoned.alive
    finally:
        site.run(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name like 'physical_%'"
        )


def test_sessions_that_are_away_keep_their_walsenders(site: Site):
    """One that is being streamed or exported has it; one that is away will come back for it."""
    there = [site.create(sessions_max=50) for _ in range(3)]
    for each in there[1:]:
        each.close()
    live = store.live(site.log)
    eventually(lambda: creation._still_to_come(site.source, live) == (0, 2))


def test_a_source_whose_commits_would_wait_for_a_client_is_refused(site: Site):
    waits = "alter system set synchronous_standby_names = '\"pipeline session delta_pet7\"'"
    try:
        site.run(waits, "select pg_reload_conf()")
        shown = "show synchronous_standby_names"
        eventually(lambda: "session" in str(site.source.execute(shown).fetchone()))
        with pytest.raises(SessionRefusedError, match="users' commits would wait for what its client acknowledges"):
            site.create()
    finally:
        site.run("alter system reset synchronous_standby_names", "select pg_reload_conf()")


@pytest.fixture
def named_once_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that gives up asks for whom it waited until the holder is visible, however slow the source is."""
    holders = exporting._holders

    def named(dsn: str, pid: int) -> list[str]:
        return [each for each in holders(dsn, pid) if each.startswith("pid ")]

    monkeypatch.setattr(exporting, "_holders", lambda dsn, pid: eventually(lambda: named(dsn, pid)))


@pytest.mark.usefixtures("named_once_seen")
def test_an_open_transaction_is_waited_for_and_then_named(any_site: Site):
    any_site.run("create table if not exists busy (id int primary key)")
    with connected(any_site) as busy:
        busy.execute("set application_name = 'another program'")
        busy.execute("insert into busy values (1)")
        began = time.monotonic()
        with pytest.raises(
            SessionRefusedError, match=rf"waited 0.3 s for pid {busy.info.backend_pid} \(.*, another program, "
        ):
            any_site.create(waits=0.3)
        assert time.monotonic() - began < 15
        assert any_site.slots() == set()
        ((_, state, reason),) = any_site.sessions()
        assert (state, reason is not None) == ("ended", True)
        busy.rollback()
    any_site.create()


@pytest.mark.usefixtures("named_once_seen")
def test_who_waits_for_a_transaction_holds_up_nobody(site: Site):
    site.run("create table if not exists busy (id int primary key)")
    with connected(site) as busy:
        busy.execute("insert into busy values (1)")
        waiting = threading.Thread(target=site.create)
        waiting.start()
        eventually(lambda: "making" in [state for _, state, _ in site.sessions()])
        began = time.monotonic()
        with pytest.raises(SessionRefusedError, match=r"waited 0\.2 s for pid"):
            site.create(waits=0.2)
        assert time.monotonic() - began < 15
        busy.rollback()
        waiting.join()
    assert len(site.slots()) == 1


@pytest.mark.parametrize(("where", "what"), [(exporting, "connect"), (exporting, "make"), (store, "ready")])
def test_what_fails_half_way_leaves_no_slot(site: Site, monkeypatch: pytest.MonkeyPatch, where: object, what: str):
    done = getattr(where, what)

    def fail(*arguments: object) -> None:
        if what != "ready" and isinstance(opened := done(*arguments), psycopg.Connection):
            opened.close()
        raise SourceUnfitError("it failed")

    monkeypatch.setattr(where, what, fail)
    with pytest.raises(SourceUnfitError):
        site.create()
    assert site.slots() == set()
    assert [(state, reason) for _, state, reason in site.sessions()] == [("ended", "it could not be made: it failed")]


@pytest.mark.parametrize(("where", "what"), [(exporting, "connect"), (exporting, "make"), (store, "ready")])
def test_what_a_killed_server_left_half_made_goes(
    site: Site, monkeypatch: pytest.MonkeyPatch, where: object, what: str
):
    """As a kill does: nothing is taken care of after it."""
    made = getattr(where, what)

    def kill(*arguments: object) -> None:
        if what != "ready" and isinstance(opened := made(*arguments), psycopg.Connection):
            opened.close()
        raise SourceUnfitError("killed")

    monkeypatch.setattr(where, what, kill)
    monkeypatch.setattr(creation._Creation, "_give_up", lambda *_: None)
    with pytest.raises(SourceUnfitError):
        site.create()
    site.enforce()
    assert [state for _, state, _ in site.sessions()] == ["making"]
    site.log.execute("update pipeline.sessions set created_at = now() - interval '1 hour'")
    site.enforce()
    assert [state for _, state, _ in site.sessions()] == ["ended"]
    assert site.slots() == set()
    assert site.log.execute("select from pipeline.sessions where dropped_at is null").rowcount == 0


def test_a_slot_that_a_killed_server_was_creating_ends_with_its_walsender(any_site: Site):
    any_site.run("create table if not exists busy (id int primary key)")
    with connected(any_site) as busy, ThreadPoolExecutor(1) as threads:
        busy.execute("insert into busy values (1)")
        making = threads.submit(any_site.create)
        eventually(lambda: len(any_site.slots()) == 1)
        any_site.enforce()
        assert len(any_site.slots()) == 1
        any_site.log.execute("update pipeline.sessions set created_at = now() - interval '1 hour'")
        any_site.enforce()
        assert any_site.slots() == set()
        with pytest.raises(PipelineError):
            making.result()
        busy.rollback()
    assert any_site.log.execute("select from pipeline.sessions where dropped_at is null").rowcount == 0


def test_settings_of_the_role_do_not_matter(site: Site):
    name = site.source.info.dbname
    hostile = {  # a second: ours are set once a session has begun
        "statement_timeout": "1s",
        "idle_in_transaction_session_timeout": "1s",
        "idle_session_timeout": "1s",
        "default_transaction_read_only": "on",
        "default_transaction_isolation": "serializable",
    }
    if site.source.info.server_version >= 170000:
        hostile["transaction_timeout"] = "1s"
    try:
        for setting, value in hostile.items():
            site.run(f"alter database {name} set {setting} = '{value}'")
        made = site.create()
        time.sleep(1.2)
        assert made.alive
    finally:
        for setting in hostile:
            site.run(f"alter database {name} reset {setting}")


def test_before_the_first_start_it_is_refused_after_a_while(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(creation, "START_SECONDS", 0.1)
    with site_at(cluster, cluster) as site:
        with pytest.raises(SessionRefusedError, match="no worker has begun to replicate"):
            site.create()
        assert site.sessions() == []


def test_a_source_that_is_absent_is_said(site: Site):
    config = site.config.with_databases("host=127.0.0.1 port=1", site.config.database)
    with pytest.raises(PipelineError, match=r"source .* is not available"):
        creation.create(config, "pgdeltastream", lambda: "delta_pet1")
