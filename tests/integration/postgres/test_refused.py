"""Only a database that does not answer is called not available: SQLSTATE says what it is otherwise."""

from __future__ import annotations

import signal

import psycopg
import pytest

from pipeline import refusals
from pipeline.config import settings
from pipeline.errors import DatabaseUnavailableError, StatementRefusedError
from pipeline.postgres import connections
from pipeline.process.signals import StopSignal
from pipeline.server import roles, runners

DSN = "postgresql://h/d"
RAISE = "do $$ begin raise exception using errcode = '{}', message = 'no more of that'; end $$"


@pytest.mark.parametrize("state", ["54000", "53100", "53200", "55000", "55P03", "42501", "22003", "57014", "58030"])
def test_a_refusal_is_named_as_what_it_is(database_dsn: str, state: str):
    with psycopg.connect(database_dsn) as connection, pytest.raises(psycopg.Error) as raised:
        connection.execute(RAISE.format(state).encode())
    error = connections.unavailable(DSN, "pipeline database", raised.value)
    assert isinstance(error, StatementRefusedError)
    assert f"refused a statement: no more of that (SQLSTATE {state})" in str(error)
    assert "not available" not in str(error)


@pytest.mark.parametrize("state", ["57P01", "57P03", "57P05", "08006"])
def test_no_answer_is_not_available(database_dsn: str, state: str):
    with psycopg.connect(database_dsn) as connection, pytest.raises(psycopg.Error) as raised:
        connection.execute(RAISE.format(state).encode())
    error = connections.unavailable(DSN, "pipeline database", raised.value)
    assert type(error) is DatabaseUnavailableError and "is not available: no more of that" in str(error)


def test_neither_is_a_session_that_was_ended_or_a_socket_that_is_closed(database_dsn: str):
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        for _ in range(2):
            with pytest.raises(psycopg.Error) as raised:
                connection.execute("select pg_terminate_backend(pg_backend_pid())")
            assert type(connections.unavailable(DSN, "source", raised.value)) is DatabaseUnavailableError
            assert not connections.is_ours(raised.value)


def test_a_reader_is_not_told_to_try_again_where_that_cannot_help(database_dsn: str):
    with psycopg.connect(database_dsn) as connection, pytest.raises(psycopg.Error) as raised:
        connection.execute(RAISE.format("54000").encode())
    assert not isinstance(refusals.for_reader(raised.value), DatabaseUnavailableError)


def test_a_role_waits_and_says_what_was_refused(database_dsn: str, monkeypatch: pytest.MonkeyPatch):
    config = settings.load(source_dsn=database_dsn, database_dsn=database_dsn)

    def refused(role: runners.HeldRole) -> None:
        role.connection.execute(RAISE.format("54000").encode())

    monkeypatch.setitem(runners.RUNNERS, "shuffle", refused)
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(StatementRefusedError, match="SQLSTATE 54000"):
            roles._hold_and_run("shuffle", config, StopSignal(ignore_interrupt=False))
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
    assert issubclass(StatementRefusedError, roles.RETRIED)
    with psycopg.connect(database_dsn) as log:
        row = log.execute("select state, reason from pipeline.roles where role = 'shuffle'").fetchone()
    assert row is not None and row[0] == "waiting" and "refused a statement: no more of that" in row[1]


@pytest.mark.parametrize(
    ("place", "state", "remedy"),
    [
        ("source", "42501", "`pipeline check --sql --roles"),
        ("pipeline database", "42501", "let its owner grant that to the user in PIPELINE_DATABASE_DSN"),
        ("pipeline database", "53100", "free some space on its disk"),
    ],
)
def test_of_two_databases_the_one_that_refused_is_named(database_dsn: str, place: str, state: str, remedy: str):
    with (
        connections.connect(database_dsn, "source") as source,
        connections.connect(database_dsn, "pipeline database") as pipeline,
    ):
        with (
            pytest.raises(psycopg.Error) as raised,
            (refuses := source if place == "source" else pipeline).transaction(),
        ):
            refuses.execute(RAISE.format(state).encode())
        error = connections.unavailable_one(source, "host=s", "host=p", raised.value)
    assert isinstance(error, StatementRefusedError) and error.database == place
    assert str(error).startswith(f"{place} (host={place[0]}")
    assert f"refused a statement: no more of that (SQLSTATE {state}); " in str(error) and remedy in str(error)
