"""What ends a session: its reason is stored, nothing of it is left at the source, and no slot of others is touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest
from pydantic import SecretStr

from pipeline.capture.source import slots, sources, walsender
from pipeline.errors import SlotInUseError
from pipeline.wal import lsn
from pipeline.wires.pgdeltastream.sessions import backends, bounds, store
from pipeline.wires.pgdeltastream.sessions.snapshot import ExportedSnapshot
from tests.fixtures.postgres import unique
from tests.fixtures.session_site import Site
from tests.fixtures.waiting import eventually


@contextmanager
def streaming(site: Site, made: ExportedSnapshot) -> Iterator[psycopg.Connection]:
    """A client's stream, as the source sees it."""
    slot = made.session.slot
    made.close()
    with closing(walsender.connect(site.config.source, f"pipeline session {slot}")) as connection:
        options = f"(proto_version '1', publication_names '{site.config.publication}')"
        command = f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn.show(made.session.position or 0)} {options}'
        connection.pgconn.exec_(command.encode())
        yield connection


def ended(connection: psycopg.Connection) -> bool:
    connection.pgconn.consume_input()
    return False


def reason(site: Site, made: ExportedSnapshot) -> str | None:
    found = store.get(site.log, made.session.id)
    assert found is not None
    assert (found.state == "ended") == (found.ended_at is not None)
    return found.reason


def test_a_session_within_its_bounds_stays(site: Site):
    made = site.create()
    site.age(made, 3500)
    site.enforce()
    assert (reason(site, made), made.alive, site.slots()) == (None, True, {made.session.slot})


def test_one_that_nobody_uses_goes(any_site: Site, caplog: pytest.LogCaptureFixture):
    other, made = any_site.create(), any_site.create()
    any_site.age(made, 3700)
    any_site.enforce()
    assert reason(any_site, made) == "no client used it for longer than PIPELINE_SESSIONS_IDLE = 1h"
    assert any_site.slots() == {other.session.slot}
    assert (made.alive, other.alive) == (False, True)

    def said() -> list[str]:
        return [record.__dict__["session"] for record in caplog.records if "session" in record.__dict__]

    assert said() == [made.session.slot]
    any_site.enforce()
    assert said() == [made.session.slot]


def test_one_that_is_streamed_is_not_idle(site: Site):
    made = site.create()
    with streaming(site, made):
        site.age(made, 3700)
        site.enforce()
        assert reason(site, made) is None
    eventually(lambda: slots.require_idle(site.source, made.session.slot), errors=(SlotInUseError,))
    site.enforce()
    assert reason(site, made) is None  # it was in use a moment ago


def test_pages_that_the_reading_role_reads_are_found_and_ended(site: Site):
    reader, made = unique("reader"), site.create()
    site.run(f"create role {reader} login")
    try:
        config = site.config.model_copy(update={"source_read_dsn": SecretStr(f"{site.config.source} user={reader}")})
        name = backends.page_name(made.session.slot)
        with psycopg.connect(config.source_reading, application_name=name) as page:
            site.age(made, 3700)
            bounds.enforce(config)
            assert reason(site, made) is None  # a page is being read
            bounds.end(config, site.source, site.log, made.session, "it was deleted")
            with pytest.raises(psycopg.OperationalError):
                page.execute("select")
        assert site.slots() == set()
    finally:
        site.run(f"drop role {reader}")


def test_one_that_holds_back_too_much_goes_though_it_is_streamed(any_site: Site):
    made = any_site.create()
    with streaming(any_site, made) as connection:
        any_site.run("select pg_logical_emit_message(true, 'x', repeat('x', 100000))")
        any_site.enforce(sessions_wal="100kB")
        assert "of WAL for it, and PIPELINE_SESSIONS_WAL is 100kB" in (reason(any_site, made) or "")
        assert any_site.slots() == set()
        with pytest.raises(psycopg.OperationalError):
            eventually(lambda: ended(connection))


def test_one_whose_slot_was_dropped_by_hand_ends(site: Site):
    made = site.create()
    site.run(f"select pg_drop_replication_slot('{made.session.slot}')")
    site.enforce()
    assert "it was dropped at the source" in (reason(site, made) or "")
    assert not made.alive


def test_one_that_is_finished_while_slots_are_looked_at_stays(site: Site, monkeypatch: pytest.MonkeyPatch):
    made = site.create()
    slot = made.session.slot
    site.log.execute("update pipeline.sessions set state = 'making', position = null where slot = %s", (slot,))
    look = slots.all_slots

    def finish(source: psycopg.Connection) -> list[slots.Slot]:
        found = [each for each in look(source) if each.name != slot]
        values = (made.session.position, slot)
        site.log.execute("update pipeline.sessions set state = 'ready', position = %s where slot = %s", values)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(slots, "all_slots", finish)
        site.enforce()
    assert (reason(site, made), site.slots()) == (None, {slot})


@pytest.mark.parametrize("plugin", ["pgoutput", "physical"])
def test_a_slot_of_its_name_that_somebody_else_made_is_not_touched(site: Site, plugin: str):
    made = site.create()
    slot = made.session.slot
    site.run(f"select pg_drop_replication_slot('{slot}')")
    if plugin == "physical":
        site.run(f"select pg_create_physical_replication_slot('{slot}')")
    else:
        site.run(f"select pg_create_logical_replication_slot('{slot}', '{plugin}')")
    try:
        site.enforce()
        site.enforce()
        assert reason(site, made) is not None
        assert site.source.execute("select from pg_replication_slots where slot_name = %s", (slot,)).rowcount == 1
    finally:
        site.run(f"select pg_drop_replication_slot('{slot}')")


def test_a_slot_that_cannot_be_dropped_is_dropped_later(site: Site, monkeypatch: pytest.MonkeyPatch):
    made = site.create()
    site.age(made, 3700)
    with monkeypatch.context() as patch:
        patch.setattr(slots, "drop", refuse)
        site.enforce()
        site.enforce()
    assert site.slots() == {made.session.slot}
    assert reason(site, made) is not None
    site.enforce()
    assert site.slots() == set()


def refuse(*_: object) -> None:
    raise SlotInUseError("a session reads it")


def test_while_the_stream_moves_its_slot_is_still_its_own(site: Site):
    """What is known of the session's position is older than what the slot has confirmed by the time it is dropped."""
    made = site.create()
    target = site.source.execute("select (pg_current_wal_flush_lsn() - '0/0')::bigint").fetchone()
    assert target is not None
    site.log.execute("update pipeline.sessions set position = %s", target)
    site.run(f"select pg_replication_slot_advance('{made.session.slot}', '{lsn.show(target[0])}')")
    bounds.end(site.config, site.source, site.log, made.session, "as it was before")
    assert site.slots() == set()


def test_all_of_a_source_end_at_once(site: Site):
    made = [site.create(), site.create()]
    stored = sources.find(site.log, None)
    assert stored is not None
    bounds.end_all(site.config, site.source, site.log, stored.id, "the source is another one")
    assert [reason(site, each) for each in made] == ["the source is another one"] * 2
    assert site.slots() == set()


def test_of_ended_ones_the_newest_hundred_stay(site: Site):
    made = site.create()
    site.log.execute(
        "insert into pipeline.sessions (slot, wire, source_id, epoch, system_identifier, state, made_after, ended_at,"
        " dropped_at) select 'old_' || i, wire, source_id, 0, '1', 'ended', 0, now(), now()"
        " from pipeline.sessions, generate_series(1, 105) i"
    )
    site.enforce()
    left = [slot for slot, _, _ in site.sessions()]
    assert left == [made.session.slot, *(f"old_{number}" for number in range(6, 106))]


def test_without_sessions_the_source_is_not_asked(site: Site):
    bounds.enforce(site.config.with_databases("host=127.0.0.1 port=1", site.config.database))
