"""The pipeline's sessions have the same settings, whatever the role, the database or the DSN sets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pipeline.client import EventLog
from pipeline.followers import connecting
from pipeline.postgres import connections, session_settings
from pipeline.wal.encoding import SESSION_SETTINGS
from pyspark_sequin_events import catalog
from tests.fixtures.postgres import Cluster
from tests.torture.plan.hostile import HOSTILE

KNOWN = "select name, setting from pg_settings where name = any(%s) order by name"
FLOAT = "(0.1::float8 + 0.2::float8)::text"


@pytest.fixture
def hostile_dsn(database_dsn: str) -> Iterator[str]:
    """Of a pipeline database in which all sessions begin with every hostile setting, but for those of the DSN.

    Timeouts are longer here: ours are set once a session has begun, which may take a moment.
    """
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        for setting, given in HOSTILE.items():
            value = "10s" if setting.endswith("_timeout") else given
            if connection.execute("select current_setting(%s, true)", [setting]).fetchone() != (None,):
                connection.execute(
                    sql.SQL("alter database {} set {} = {}").format(name, sql.Identifier(setting), value)
                )
    yield make_conninfo(database_dsn, options="-c DateStyle=SQL,DMY -c extra_float_digits=0")


def test_every_setting_is_ours(hostile_dsn: str) -> None:
    names = list(session_settings.SERVER)
    with connections.connect(hostile_dsn, "pipeline database") as ours:
        found: dict[str, str] = dict(ours.execute(KNOWN, [names]).fetchall())
        assert ours.execute(f"select {FLOAT}").fetchone() == ("0.30000000000000004",)
    assert found == {name: value for name, value in _as_shown(session_settings.SERVER).items() if name in found}
    assert found.keys() >= session_settings.SERVER.keys() - {"transaction_timeout"}

    async def over_asyncio() -> dict[str, str]:
        connection = await connections.connect_async(hostile_dsn, name="pipeline", settings=session_settings.SERVER)
        async with connection:
            return dict(await (await connection.execute(KNOWN, [names])).fetchall())

    assert asyncio.run(over_asyncio()) == found


def test_only_sessions_of_the_pipeline_database_have_its_own_path(hostile_dsn: str) -> None:
    async def over_asyncio() -> Any:
        settings = session_settings.SOURCE
        async with await connections.connect_async(hostile_dsn, name="pipeline", settings=settings) as source:
            return await (await source.execute("show search_path")).fetchone()

    with (
        connections.connect(hostile_dsn, "source") as source,
        connections.connect_promptly(hostile_dsn, "source", name="pipeline") as prompt,
        connections.answering(hostile_dsn, "source", 60, name="pipeline") as answering,
        connecting.connect("f", hostile_dsn, program="pipeline") as follower,
        connections.connect(hostile_dsn, "pipeline database") as pipeline,
    ):
        for each in (source, prompt, answering, follower):
            assert each.execute("show search_path").fetchone() == ("",)
        assert pipeline.execute("show search_path").fetchone() == (HOSTILE["search_path"],)
    assert asyncio.run(over_asyncio()) == ("",)


@pytest.mark.parametrize(("given", "becomes"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")])
def test_what_we_commit_is_durable(database_dsn: str, given: str, becomes: str) -> None:
    dsn = make_conninfo(database_dsn, options=f"-c synchronous_commit={given}")
    for settings in (session_settings.SERVER, session_settings.API):
        with connections.connect(dsn, "pipeline database", settings=settings) as ours:
            assert ours.execute("show synchronous_commit").fetchone() == (becomes,)


def test_no_session_begins_with_a_statement_that_is_compiled(clusters: Callable[[int], Cluster]) -> None:
    """On a busy machine that takes longer than a role's statement_timeout may be, each time: then nothing starts."""
    with clusters(15).database("settings") as database:
        dsn = make_conninfo(database, options="-c jit_above_cost=0")
        with psycopg.connect(dsn) as plain, connections.connect(dsn, "pipeline database") as ours:
            plain.execute("select 1")
            assert [_has_compiler(connection) for connection in (plain, ours)] == [True, False]


def test_an_event_log_reads_as_always(hostile_dsn: str) -> None:
    assert EventLog(hostile_dsn).read(after=0) == []


@pytest.mark.parametrize("as_uri", [False, True])
def test_so_do_the_sessions_of_spark(hostile_dsn: str, as_uri: bool) -> None:
    dsn = f"postgresql:///?{urlencode(conninfo_to_dict(hostile_dsn), quote_via=quote)}" if as_uri else hostile_dsn
    with catalog.connect(dsn) as connection:
        [row] = catalog.rows(connection, f"select current_setting('DateStyle') as style, {FLOAT} as float")
        assert row == {"style": "ISO, DMY", "float": "0.30000000000000004"}


def _has_compiler(connection: psycopg.Connection[Any]) -> bool:
    return "llvmjit" in Path(f"/proc/{connection.info.backend_pid}/maps").read_text("utf-8")


def _as_shown(settings: dict[str, str]) -> dict[str, str]:
    return {**settings, "DateStyle": "ISO, DMY", "search_path": SESSION_SETTINGS["search_path"]}
