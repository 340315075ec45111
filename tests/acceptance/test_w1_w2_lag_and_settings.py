"""W1 and W2 of walakka's checklist: lag in bytes per slot, and the settings of catching up."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from pipeline import db
from pipeline.replication import slot as slots
from tests.fixtures.catching_up import BEHIND, MEGABYTE, CatchingUp, catching_up
from tests.fixtures.postgres import Cluster
from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually

LAG = (
    "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), confirmed_flush_lsn)"
    " from pg_replication_slots where slot_name = %s"
)
WRITE = "select count(pg_logical_emit_message(false, 'elsewhere', repeat('x', 1000000))) from generate_series(1, %s)"


@pytest.fixture
def stage(quiet_cluster: Cluster, cluster: Cluster, tmp_path: Path) -> Iterator[CatchingUp]:
    with catching_up(quiet_cluster, cluster, tmp_path) as made:
        yield made


def metric(server: Serving, slot: str) -> float:
    found = re.search(rf'^pipeline_slot_lag_bytes{{slot="{slot}"}} (\S+)$', server.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_w1_lag_in_bytes_is_shown_per_slot(
    serve: Callable[..., Serving], source_dsn: str, database_dsn: str, slot_name: str, tmp_path: Path
) -> None:
    api = serve(arguments=("serve", "--only", "api"), wait=False)
    with db.connect(source_dsn, "source") as source:
        slots.create(source, slot_name)
        for megabytes in (50, 5):  # the second time at once, too: nothing is kept between two looks
            source.execute(WRITE, [megabytes])
            lag = source.execute(LAG, [slot_name]).fetchone()
            assert lag is not None
            assert lag[0] > 50 * MEGABYTE
            shown = eventually(lambda: metric(api, slot_name), 60, (AssertionError, httpx.TransportError))
            assert shown == pytest.approx(float(lag[0]), abs=MEGABYTE)
    settings = {"source_dsn": source_dsn, "database_dsn": database_dsn, "slot": slot_name}
    status = json.loads(run_command("status", "--json", folder=tmp_path, **settings).stdout)
    assert status["slots"] == [
        {
            "name": slot_name,
            "active": False,
            "confirmed_lsn": status["confirmed_lsn"],
            "lag_bytes": pytest.approx(shown, abs=MEGABYTE),
        }
    ]


def test_w2_bad_values_are_rejected_at_start(tmp_path: Path) -> None:
    wrong: dict[str, object] = {"catchup_threshold": "many", "catchup_interval": 0.01, "catchup_max_slots": 65}
    done = run_command("serve", folder=tmp_path, **wrong)
    assert done.returncode == 2
    for name in wrong:
        assert f"PIPELINE_{name.upper()}: " in done.stderr


@pytest.mark.parametrize(
    ("settings", "slots"),
    [
        ({"catchup_threshold": "off"}, 1),
        ({"catchup_max_slots": 5, "catchup_threshold": "500kB", "catchup_interval": 0.05}, 5),
    ],
    ids=["off", "five"],
)
def test_w2_settings_decide_when_and_by_how_many_slots(
    stage: CatchingUp, settings: dict[str, object], slots: int
) -> None:
    with stage.first_worker_held():
        server = stage.serve("--only", "replication", **settings)
        stage.streams()
        if slots > 1:
            assert len(stage.fall_behind()) == slots - 1
        else:
            stage.write(BEHIND)
    stage.staged_all()
    assert server.log().count("catchup.planned") >= (slots > 1)
    if slots == 1:
        assert "catchup.planned" not in server.log()
