"""Sessions that are kept between looks: the same ones while they are fine, and new ones when they are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from pipeline.errors import DatabaseUnavailableError
from pipeline.postgres import connections, kept_sessions, session_settings
from pipeline.postgres.kept_sessions import KeptSessions
from tests.fixtures.lagging import stopped
from tests.fixtures.waiting import eventually


@pytest.fixture
def kept(database_dsn: str) -> Iterator[KeptSessions]:
    def connect() -> list[connections.Connection]:
        return [connections.connect(database_dsn, "pipeline database", name=f"kept {number}") for number in range(2)]

    with closing(KeptSessions(connect)) as made:
        yield made


def pids(kept: KeptSessions) -> list[int]:
    """The settings of the sessions of one check, which are those of every pipeline session."""
    with kept.lend() as found:
        for connection in found:
            shown = connection.execute("select current_setting('jit')").fetchone()
            assert shown == (session_settings.SERVER["jit"],)
        return [connection.info.backend_pid for connection in found]


def test_a_look_finds_the_sessions_of_the_one_before_it(kept: KeptSessions):
    assert pids(kept) == pids(kept)


@pytest.mark.parametrize("lost", [0, 1])
def test_where_one_was_lost_all_are_new(kept: KeptSessions, database_dsn: str, lost: int):
    before = pids(kept)
    running = "select from pg_stat_activity where pid = any(%s)"
    with psycopg.connect(database_dsn, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s)", [before[lost]])
        eventually(lambda: other.execute(running, [before]).rowcount == 1)
        assert not set(pids(kept)) & set(before)
        eventually(lambda: other.execute(running, [before]).rowcount == 0)


def test_after_a_look_that_failed_they_are_new(kept: KeptSessions):
    before = pids(kept)
    with pytest.raises(ZeroDivisionError), kept.lend() as (first, _):
        first.execute("set jit = on")
        raise ZeroDivisionError
    assert not set(pids(kept)) & set(before)


def test_they_are_new_after_a_while(kept: KeptSessions, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept_sessions, "LONGEST", 0.0)
    assert not set(pids(kept)) & set(pids(kept))


def test_one_that_is_silent_is_given_up(kept: KeptSessions, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "CONNECT_TIMEOUT", 1)
    before = pids(kept)
    with stopped(before[0]):
        assert not set(pids(kept)) & set(before)


def test_what_connecting_raises_is_raised_each_time():
    def refused() -> list[connections.Connection]:
        raise DatabaseUnavailableError("no")

    with closing(KeptSessions(refused)) as none:
        for _ in range(2):
            with pytest.raises(DatabaseUnavailableError), none.lend():
                pass
