"""Five minutes of an idle source, of traffic in unpublished tables only, and in another database only.

Each source is its own cluster, so that none has the others' WAL; they run side by side.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from pipeline.postgres.embedded import EmbeddedServer
from tests.fixtures.elsewhere import Noise, Sample, Watch, watch
from tests.fixtures.postgres import SETTINGS, Cluster, free_port
from tests.fixtures.server import Serving

SECONDS, SETTLED, LATEST = 300, 30, 120
"""How long it runs, how long it may take to settle, and the end that is compared with what was before."""
MEGABYTE = 1_000_000
NOISE = 1.0
RUNNING_XACTS_EVERY = 15.0
"""Seconds between two records at which restart_lsn can move at all."""


@pytest.fixture
def sources(server_directory: Path) -> Iterator[dict[str, EmbeddedServer]]:
    """Three clusters, each with a database `shop` to replicate from."""
    servers = {
        name: EmbeddedServer(server_directory.with_name(name[:4]), settings=SETTINGS, port=free_port())
        for name in ("idle", "unpublished", "elsewhere")
    }
    with ExitStack() as stack:
        for server in servers.values():
            stack.callback(server.stop, "immediate")
            server.start()
            server.create_databases("shop", "other")
            with psycopg.connect(server.dsn("shop"), autocommit=True) as source:
                source.execute("create table t (id int primary key)")
        yield servers


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 120)
def test_the_slot_keeps_up_where_nothing_is_for_us(
    sources: dict[str, EmbeddedServer], serve: Callable[..., Serving], cluster: Cluster, slot_name: str
):
    noisy = {"unpublished": "shop", "elsewhere": "other"}
    with ExitStack() as stack:
        for server in sources.values():
            database = stack.enter_context(cluster.database("events", cluster.template))
            served = serve(source_dsn=server.dsn("shop"), database_dsn=database, tables="public.t")
            stack.callback(served.close)  # before its database is dropped
        for name, where in noisy.items():
            stack.enter_context(Noise(sources[name].dsn(where), NOISE))
        watches = {name: stack.enter_context(Watch(server.dsn("shop"), slot_name)) for name, server in sources.items()}
        watch([*watches.values()], SECONDS)
    for name, each in watches.items():
        show(name, each.samples)
    for name, each in watches.items():
        settled = [sample for sample in each.samples if sample.at >= SETTLED]
        assert rate(each.samples) > NOISE / 2 or name not in noisy
        assert max(sample.behind for sample in settled) < MEGABYTE, name
        before = max(sample.held_back for sample in settled if sample.at < SECONDS - LATEST)
        latest = max(sample.held_back for sample in settled if sample.at >= SECONDS - LATEST)
        # A record of running transactions that one window has just missed is in the other.
        slack = (NOISE if name in noisy else 0) * RUNNING_XACTS_EVERY * MEGABYTE + MEGABYTE
        assert latest <= before + slack, name


def rate(samples: list[Sample]) -> float:
    """MB of WAL a second."""
    return (samples[-1].written - samples[0].written) / (samples[-1].at - samples[0].at) / MEGABYTE


def show(name: str, samples: list[Sample]) -> None:
    """The figures, in kB: of confirmed_flush_lsn and of restart_lsn, before it has settled and later."""
    print(f"{name}: {len(samples)} samples, {rate(samples):.2f} MB/s of WAL")
    windows = {
        f"first {SETTLED} s": [s for s in samples if s.at < SETTLED],
        "middle": [s for s in samples if SETTLED <= s.at < SECONDS - LATEST],
        f"last {LATEST} s": [s for s in samples if s.at >= SECONDS - LATEST],
    }
    for window, within in windows.items():
        behind = [s.behind // 1000 for s in within]
        held = [s.held_back // 1000 for s in within]
        print(
            f"  {window:<11} behind: median {statistics.median(behind):,.0f} max {max(behind):,} kB;"
            f" held back: median {statistics.median(held):,.0f} max {max(held):,} kB"
        )
