"""One stream for all tests of the folder that a worker runs, but for those that start or end it."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.fixtures.folder_scope import shared_in_folder
from tests.fixtures.postgres import Cluster
from tests.fixtures.snapshotting import SharedSnapshotting


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, cluster: Cluster) -> SharedSnapshotting:
    return shared_in_folder(request, lambda: closing(SharedSnapshotting(cluster)))
