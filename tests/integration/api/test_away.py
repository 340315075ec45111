"""The pipeline database goes away and comes back while the API answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.postgres.embedded import EmbeddedServer
from tests.fixtures.api import Api, answering
from tests.fixtures.data_directories import MIGRATED, prepare
from tests.fixtures.postgres import SETTINGS
from tests.fixtures.waiting import eventually


@pytest.fixture
def database(server_directory: Path) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(server_directory, settings=SETTINGS)
    prepare(server_directory, server.bin_dir)
    server.start()
    yield server
    server.stop("immediate")


@pytest.fixture
def api(database: EmbeddedServer) -> Iterator[Api]:
    with answering(database.dsn(MIGRATED)) as answers:
        yield answers


def test_what_works_without_the_database_goes_on(api: Api, database: EmbeddedServer) -> None:
    eventually(lambda: api.post("/v1/consumers", name="c", kind="cursor").status_code == 201)
    database.stop("immediate")
    answer = api.get("/v1/events")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["title"].startswith("the pipeline database does not")
    assert api.get("/healthz").text == "ok\n"
    assert api.get("/readyz").status_code == 503
    assert 'pipeline_up{database="pipeline"} 0.0' in api.get("/metrics").text
    assert api.get("/docs").status_code == 200

    database.start()
    eventually(lambda: api.get("/v1/consumers/c").status_code == 200)


def test_a_database_that_is_not_migrated(source_dsn: str) -> None:
    with answering(source_dsn) as api:
        eventually(lambda: "run `pipeline migrate`" in api.get("/v1/events").json()["title"])
        assert api.get("/v1/consumers").status_code == 503
