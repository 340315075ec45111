"""Connections to the pipeline database: each is a new session, and what the driver must know of types is read once."""

from __future__ import annotations

from typing import Any

import adbc_driver_postgresql
import pytest
from adbc_driver_manager import AdbcDatabase

from pyspark_sequin_events import catalog


def test_types_are_read_once_for_all_connections(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    connect: Any = adbc_driver_postgresql.connect

    def counted(dsn: str) -> AdbcDatabase:
        read.append(dsn)
        return connect(dsn)  # type: ignore[no-any-return]

    monkeypatch.setattr(adbc_driver_postgresql, "connect", counted)
    sessions = set()
    for _ in range(3):
        with catalog.connect(database_dsn) as connection:
            [row] = catalog.rows(connection, "select pg_backend_pid() as pid, '{}'::jsonb as empty, 'x'::text as text")
            assert (row["empty"], row["text"]) == ("{}", "x")
            sessions.add(row["pid"])
    assert len(sessions) == 3
    assert read == [database_dsn]
