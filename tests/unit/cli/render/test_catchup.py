"""A catch-up as people and Prometheus see it."""

from __future__ import annotations

import json

import pytest

from pipeline.capture.catchup.plan import BacklogPart, order_parts
from pipeline.cli.render import status
from pipeline.operate import metrics
from pipeline.operate.lag.slot_lag import SlotLag
from pipeline.operate.status import PipelineStatus

MB = 1_000_000


def some_status() -> PipelineStatus:
    parts = order_parts(
        [
            BacklogPart(0, 0, 5 * MB, 5 * MB),
            BacklogPart(1, 5 * MB, 9 * MB, 6 * MB),
            BacklogPart(2, 9 * MB, None, 9 * MB),
        ]
    )
    slots = [SlotLag("pipeline", False, 5 * MB, 10 * MB), SlotLag("pipeline_part_1", True, 6 * MB, 9 * MB)]
    return PipelineStatus(revision="0011", slot="pipeline", catchup=parts, slots=slots)


def test_each_part_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    status.show_status(some_status(), everything=True)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    at = next(place for place, line in enumerate(lines) if line.startswith("catching up by"))
    assert lines[at + 1 : at + 4] == [
        "pipeline 0/0 0/4C4B40 0/4C4B40 0 B 10.0 MB all staged",
        "pipeline_part_1 0/4C4B40 0/895440 0/5B8D80 3.0 MB 9.0 MB next in order",
        "pipeline_part_2 0/895440 no end 0/895440 - - no connection reads this slot now",
    ]
    assert any("; the slot is 10.0 MB behind" in line for line in lines)


def test_nothing_is_said_without_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    status.show_status(PipelineStatus(revision="0011", slot="pipeline"))
    assert "catching up" not in capsys.readouterr().out


def test_scripts_get_lsns_as_postgres_prints_them() -> None:
    shown = json.loads(json.dumps(some_status().to_json()))
    assert shown["slots"][0] == {
        "name": "pipeline",
        "active": False,
        "confirmed_lsn": "0/4C4B40",
        "confirmed_lsn_bytes": 5 * MB,
        "lag_bytes": 10 * MB,
    }
    assert shown["catchup"][2] == {
        "worker": 2,
        "from_lsn": "0/895440",
        "from_lsn_bytes": 9 * MB,
        "position": "0/895440",
        "position_bytes": 9 * MB,
        "until_lsn": None,
        "until_lsn_bytes": None,
        "left_bytes": None,
        "reached": False,
    }


def test_metrics() -> None:
    shown = metrics.render(some_status()).decode().splitlines()
    assert 'pipeline_slot_lag_bytes{slot="pipeline_part_1"} 9e+06' in shown
    assert "pipeline_catchup_parts 3.0" in shown
    assert 'pipeline_catchup_part_left_bytes{worker="1"} 3e+06' in shown
    assert 'pipeline_catchup_part_reached{worker="2"} 0.0' in shown
    assert not any(line.startswith('pipeline_catchup_part_left_bytes{worker="2"}') for line in shown)
    assert "pipeline_catchup_parts 0.0" in metrics.render(PipelineStatus()).decode().splitlines()
