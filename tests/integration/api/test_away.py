"""The pipeline database goes away and comes back while the API answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.postgres import migrations
from pipeline.postgres.embedded import Server
from tests.fixtures.api import Api, answering
from tests.fixtures.waiting import eventually


@pytest.fixture
def database(server_directory: Path) -> Iterator[Server]:
    server = Server(server_directory)
    server.start()
    server.create_databases("pipeline")
    yield server
    server.stop("immediate")


@pytest.fixture
def api(database: Server) -> Iterator[Api]:
    migrations.upgrade(database.dsn("pipeline"))
    with answering(database.dsn("pipeline")) as answers:
        yield answers


def test_what_works_without_the_database_goes_on(api: Api, database: Server) -> None:
    eventually(lambda: api.post("/v1/consumers", name="c", kind="cursor").status_code == 201)
    database.stop("immediate")
    answer = api.get("/v1/events")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["title"].startswith("the pipeline database does not")
    assert api.get("/healthz").text == "ok\n"
    assert api.get("/readyz").status_code == 503
    assert api.get("/metrics").status_code == 503
    assert api.get("/docs").status_code == 200

    database.start()
    eventually(lambda: api.get("/v1/consumers/c").status_code == 200)


def test_a_database_that_is_not_migrated(source_dsn: str) -> None:
    with answering(source_dsn) as api:
        eventually(lambda: "run `pipeline migrate`" in api.get("/v1/events").json()["title"])
        assert api.get("/v1/consumers").status_code == 503
