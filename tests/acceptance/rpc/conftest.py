"""One server, which serves gRPC and walstream's wire and needs a token, for the tests that leave it as it was."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.folder_scope import shared_in_folder
from tests.fixtures.grpc_place import TOKEN, Place, place_of
from tests.fixtures.postgres import Cluster


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Place:
    settings: dict[str, Any] = {"wires": "walstream", "open_wires": "walstream", "api_token": TOKEN}
    return shared_in_folder(request, lambda: place_of(cluster, tmp_path_factory.mktemp("rpc"), **settings))
