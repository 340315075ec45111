"""One of the moments at which `make torture` kills an exporter."""

from __future__ import annotations

import pytest

from tests.fixtures.postgres import Cluster
from tests.torture import export_kills


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_exporter_that_is_killed_leaves_each_event_once(cluster: Cluster) -> None:
    with export_kills.log_on(cluster) as log:
        export_kills.kill_at(log, "between the last move and the ledger's commit")
        export_kills.require_equal(log)
