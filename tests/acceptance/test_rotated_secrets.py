"""New passwords and tokens, as docs/operate/security.md says: which of them need a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg import sql

from tests.fixtures.followers import asking_for_a_password
from tests.fixtures.postgres import unique
from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually

IDS = "select coalesce(array_agg((record ->> 'id')::int order by seq), '{}') from sequin_events"
SESSIONS = "select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = 'rotated'"


@pytest.mark.long
def test_a_password_file_is_read_again_and_a_token_needs_a_restart(
    serve: Callable[..., Serving], tmp_path: Path
) -> None:
    passwords, token = tmp_path / "pgpass", tmp_path / "token"
    passwords.touch(0o600)
    passwords.write_text("*:*:*:rotated:first")
    token.write_text("old")
    with (
        asking_for_a_password("rotated", "first") as strict,
        strict.database("source") as source_dsn,
        strict.database("events", strict.template) as database_dsn,
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(database_dsn, autocommit=True) as log,
    ):
        assert strict.server is not None
        source.execute("create table t (id int primary key)")
        login = f"user=rotated passfile={passwords}"
        given = {
            "source_dsn": f"{strict.server.tcp_dsn(source.info.dbname)} {login}",
            "database_dsn": f"{strict.server.tcp_dsn(log.info.dbname)} {login}",
            "slot": unique("slot"),
            "snapshot": "never",
            "api_token_file": token,
        }
        server = serve(**given)
        source.execute("insert into t values (1)")
        eventually(lambda: log.execute(IDS).fetchone() == ([1],))
        source.execute(sql.SQL("alter role rotated password {}").format("second"))
        passwords.write_text("*:*:*:rotated:second")
        token.write_text("new")
        source.execute(SESSIONS)
        source.execute("insert into t values (2)")
        eventually(lambda: log.execute(IDS).fetchone() == ([1, 2],))
        assert _statuses(server) == [200, 401]
        assert server.stop() == 0
        assert _statuses(serve(**given)) == [401, 200]


def _statuses(server: Serving) -> list[int]:
    """Return the answers to a request with the old token, and to one with the new token."""
    asked = [{"authorization": f"Bearer {token}"} for token in ("old", "new")]
    return [httpx.get(server.url("/v1/status"), headers=headers, timeout=60).status_code for headers in asked]
