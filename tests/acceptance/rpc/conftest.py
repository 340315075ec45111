"""One server, which serves gRPC and walstream's wire and needs a token, for the tests that leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.grpc_place import TOKEN, Place, place_of
from tests.fixtures.postgres import Cluster


@pytest.fixture(scope="session")
def place(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    settings: dict[str, Any] = {"wires": "walstream", "open_wires": "walstream", "api_token": TOKEN}
    with place_of(cluster, tmp_path_factory.mktemp("rpc"), **settings) as made:
        yield made
