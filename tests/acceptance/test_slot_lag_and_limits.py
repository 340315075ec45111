"""Lag in bytes of each slot, and what keeps a backlog from being read by more than one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg
import pytest

from pipeline.capture.source import slots
from pipeline.postgres import connections, session_settings
from tests.fixtures.api import Api
from tests.fixtures.catching_up import BEHIND, MEGABYTE, CatchingUp, catching_up
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.server import run_command
from tests.fixtures.waiting import eventually

LAG = (
    "select pg_wal_lsn_diff(pg_current_wal_flush_lsn(), confirmed_flush_lsn)"
    " from pg_replication_slots where slot_name = %s"
)
WRITE = "select count(pg_logical_emit_message(true, 'elsewhere', repeat('x', 1000000))) from generate_series(1, %s)"


@pytest.fixture
def stage(quiet_cluster: Cluster, cluster: Cluster, tmp_path: Path) -> Iterator[CatchingUp]:
    with catching_up(quiet_cluster, cluster, tmp_path) as made:
        yield made


def metric(served: Api, slot: str) -> float:
    found = re.search(rf'^pipeline_slot_lag_bytes{{slot="{slot}"}} (\S+)$', served.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def require_metric(served: Api, slot: str, lag: float) -> None:
    assert metric(served, slot) == pytest.approx(lag, abs=MEGABYTE)


def test_lag_in_bytes_is_shown_per_slot(
    api: Callable[..., Api], source_dsn: str, database_dsn: str, slot_name: str, tmp_path: Path
) -> None:
    served = api(source_dsn=source_dsn, slot=slot_name)
    with connections.connect(source_dsn, "source", settings=session_settings.SERVER) as source:
        slots.create(source, slot_name)
        for megabytes in (50, 5):
            source.execute(WRITE, [megabytes])
            lag = source.execute(LAG, [slot_name]).fetchone()
            assert lag is not None
            assert lag[0] > 50 * MEGABYTE
            shown = float(lag[0])
            eventually(partial(require_metric, served, slot_name, shown))  # an answer is shared for 2 s
    settings = {"source_dsn": source_dsn, "database_dsn": database_dsn, "slot": slot_name}
    status = json.loads(run_command("status", "--json", folder=tmp_path, **settings).stdout)
    assert status["slots"] == [
        {
            "name": slot_name,
            "active": False,
            "confirmed_lsn": status["confirmed_lsn"],
            "confirmed_lsn_bytes": status["confirmed_lsn_bytes"],
            "lag_bytes": pytest.approx(shown, abs=MEGABYTE),
        }
    ]


@pytest.mark.xdist_group("catching up")
@pytest.mark.parametrize(
    ("settings", "free", "said"),
    [
        ({"catchup_threshold": "off"}, None, None),
        ({"catchup_max_slots": 1}, None, "PIPELINE_CATCHUP_MAX_SLOTS is 1"),
        ({}, 0, "the source has 0 of its max_replication_slots"),
    ],
    ids=["off", "set", "no free slot"],
)
def test_one_slot_goes_on_where_there_may_be_no_more(
    stage: CatchingUp, settings: dict[str, object], free: int | None, said: str | None
) -> None:
    """A limit is a warning; nothing is said where it was turned off."""
    server = stage.serve("--only", "replication", **settings)
    stage.streams()
    with ExitStack() as stack:
        if free is not None:
            stack.enter_context(only_so_many_free(stage.source, free))
        with stage.first_worker_held():
            stage.write(BEHIND)
            if said is not None:
                eventually(lambda: said in server.log(), 60)
        stage.staged_all()
    assert (server.log().count("catchup.limited") >= 1) == (said is not None)
    assert server.process.poll() is None
    assert "catchup.planned" not in server.log()


def only_so_many_free(source: psycopg.Connection, free: int) -> ExitStack:
    """Until the block's end all other slots of the source are taken."""
    stack, name = ExitStack(), unique("taken")
    query = "select current_setting('max_replication_slots')::int - count(*) from pg_replication_slots"
    row = source.execute(query).fetchone()
    assert row is not None
    for number in range(row[0] - free):
        taken = f"{name}_{number}"
        source.execute("select pg_create_physical_replication_slot(%s)", [taken])
        stack.callback(source.execute, "select pg_drop_replication_slot(%s)", [taken])
    return stack
