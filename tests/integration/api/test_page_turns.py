"""Pages of events that take long leave connections to other requests."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg

from pipeline.api.events import PAGES_AT_ONCE
from pipeline.postgres.pool import MAX_CONNECTIONS
from tests.fixtures.api import Api
from tests.fixtures.waiting import eventually

WAITING = "select count(*) from pg_stat_activity where application_name = 'pipeline api' and wait_event_type = 'Lock'"


def test_pages_that_wait_leave_connections_to_other_requests(api: Callable[..., Api], database_dsn: str) -> None:
    served, number = api(), 2 * MAX_CONNECTIONS
    with (
        psycopg.connect(database_dsn) as holder,
        psycopg.connect(database_dsn, autocommit=True) as log,
        ThreadPoolExecutor(number) as clients,
    ):
        holder.execute("lock table sequin_events in access exclusive mode")
        pages = [clients.submit(served.get, "/v1/events", after=0) for _ in range(number)]

        def waiting() -> int:
            row = log.execute(WAITING).fetchone()
            return int(row[0]) if row else 0

        try:
            eventually(lambda: waiting() == PAGES_AT_ONCE)
            ids = ["7ffb1b4e-3b9c-4a52-8f0e-6b7c3c1a9d10"]
            assert served.post("/v1/consumers/none/ack", ack_ids=ids).status_code == 404
            assert waiting() == PAGES_AT_ONCE
        finally:
            holder.rollback()
        assert {page.result().status_code for page in pages} <= {200, 503}
        assert pages[0].result().status_code == 200
