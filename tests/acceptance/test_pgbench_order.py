"""Under pgbench's TPC-B the events are what a `test_decoding` slot of the same database reports, in its order."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.fixtures import test_decoding
from tests.fixtures.postgres import Cluster
from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually

DEBIANS = 15
"""The only Postgres here with test_decoding: the wheel's have none, so without Debian's this test is left out."""
SECONDS, CLIENTS = 20, 4
KEYS = {"public.pgbench_accounts": "aid", "public.pgbench_branches": "bid", "public.pgbench_tellers": "tid"}
CHANGES = [*KEYS, "public.pgbench_history"]
"""Each transaction changes one row of each."""


@pytest.fixture
def source_cluster(clusters: Callable[[int], Cluster]) -> Cluster:
    return clusters(DEBIANS)


@pytest.fixture
def database_cluster(source_cluster: Cluster) -> Cluster:
    return source_cluster


def pgbench(binaries: Path, dsn: str, *arguments: str) -> str:
    command = [str(binaries / "pgbench"), *arguments, dsn]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS + 60).stdout


@pytest.mark.long
def test_events_equal_what_test_decoding_reports(
    source_cluster: Cluster, source_dsn: str, database_dsn: str, serve: Callable[..., Serving], slot_name: str
):
    assert source_cluster.server is not None
    binaries = source_cluster.server.bin_dir
    pgbench(binaries, source_dsn, "-i", "-q", "-s", "2")
    with psycopg.connect(source_dsn, autocommit=True) as source, psycopg.connect(database_dsn, autocommit=True) as log:
        test_decoding.make_slot(source, f"{slot_name}_td")
        server = serve()
        shown = pgbench(binaries, source_dsn, "-c", str(CLIENTS), "-j", "2", "-T", str(SECONDS))
        transactions = int(shown.split("transactions actually processed: ")[1].split()[0])
        test_decoding.send_mark(source, "end of the load")
        eventually(lambda: test_decoding.arrived(log, "end of the load"), timeout=60)
        reported = test_decoding.read_slot(source, f"{slot_name}_td", KEYS)
        count = test_decoding.assert_same(test_decoding.read_events(log), reported)
        # pgbench empties its history first, the mark comes last.
        assert count == 1 + transactions * len(CHANGES) + 1
        assert test_decoding.transaction_sizes(log) == [1, *[len(CHANGES)] * transactions, 1]
    assert server.stop() == 0
