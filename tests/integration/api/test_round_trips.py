"""What a page of events costs: round trips to the database, and no thread."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import httpx
import pytest

from pipeline.api import app
from pipeline.config.settings import load
from pipeline.server import served_endpoints
from tests.fixtures import round_trips
from tests.fixtures.small_log import small_log

STARS = "public." + "*" * 25 + "!"


@pytest.mark.parametrize(
    ("query", "most"),
    [("after=25", 2), ("after=30", 2), (f"after=0&tables={STARS}", 2), ("limit=10", 3), ("after=0&limit=30", 3)],
)
def test_a_page_of_events_takes_few_round_trips(database_dsn: str, tmp_path: Path, query: str, most: int) -> None:
    async def run() -> None:
        config = load(source_dsn="host=/nowhere", database_dsn=database_dsn)
        application = app.create(served_endpoints.parts(config, "test:1"))
        transport = httpx.ASGITransport(application)
        async with (
            application.router.lifespan_context(application),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            connection = await round_trips.only_connection(application.state.database)
            await client.get(f"/v1/events?{query}")  # prepares the statement
            threads = threading.active_count()
            with round_trips.counted(connection, tmp_path) as count:
                answer = await client.get(f"/v1/events?{query}")
                assert (answer.status_code, count()) == (200, most)
            assert threading.active_count() == threads

    with small_log(database_dsn, 30):
        asyncio.run(run())
