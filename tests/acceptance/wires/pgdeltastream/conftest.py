"""One server, which serves this wire, for all tests that leave it as it was: by one process, in one group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.fixtures.delta_stream import Client
from tests.fixtures.folder_scope import shared_in_folder
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.server import serving
from tests.fixtures.wire_place import SECRET, Place, drop_slots, require_clean


@contextmanager
def place_of(cluster: Cluster, folder: Path) -> Iterator[Place]:
    """Its own server, which must say nothing unexpected."""
    slot = unique("slot")
    with (
        cluster.database("source") as source_dsn,
        cluster.database("events", cluster.template) as database_dsn,
        serving(folder, source_dsn, database_dsn, slot) as start,
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(database_dsn, autocommit=True) as log,
    ):
        server = start(wires="pgdeltastream", sessions_max=40, snapshot="never", log_level="debug")
        client = Client(server.port)
        yield Place(server, source, log, client, start, slot)
        client.close()
        require_clean(server)
        assert SECRET not in server.log(), "nor in what the other roles say"


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return shared_in_folder(request, lambda: place_of(cluster, tmp_path_factory.mktemp("wires")))


@pytest.fixture(scope="module")
def place(running: Place) -> Iterator[Place]:
    """The same for every module; a module's sessions are dropped with it, by hand as an operator may."""
    yield running
    drop_slots(running.source)
