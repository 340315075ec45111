"""A first start that waits for a transaction says so, and a stop ends the wait at once and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import psycopg

from pipeline.config import settings
from pipeline.operate import status
from pipeline.operate.preflight import check
from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually

OURS = "select application_name from pg_stat_activity where application_name like 'pipeline%%' and datname = %s"


def test_a_first_start_that_waits_names_the_transaction_and_stops_at_once(
    serve: Callable[..., Serving], source_dsn: str, database_dsn: str, slot_name: str
) -> None:
    config = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)
    with psycopg.connect(source_dsn, application_name="importer") as other:
        other.execute("create table t (id int primary key)")  # a transaction that has written
        holder = f"s for the end of pid {other.info.backend_pid} (postgres, importer, idle in transaction, open for "
        server = serve(wait=False)

        def is_named() -> None:
            answer = server.get("/readyz")
            assert answer.status_code == 503
            found = "\n".join(answer.json()["reasons"])
            assert holder in found, found
            assert found.startswith(f'replication: creating slot "{slot_name}" has waited '), found

        eventually(is_named, errors=(AssertionError, httpx.TransportError))
        assert any(holder in reason for reason in status.collect(config).reasons)
        assert any(holder in finding.text for finding in check.run(config) if finding.name == "slot")
        assert server.stop() == 0
        assert holder in server.log()
        assert "killed" not in server.log()  # the role has not used up its 30 seconds
        with psycopg.connect(source_dsn) as look:
            assert look.execute(OURS, [other.info.dbname]).fetchall() == []
