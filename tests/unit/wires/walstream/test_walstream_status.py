"""What is shown of walstream's sessions: which are connected, for which the server waits, and what each owes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from pipeline.terminal import drawing
from pipeline.wires.walstream import render as shown
from pipeline.wires.walstream import walstream_metrics
from pipeline.wires.walstream.status import WalstreamSession, WalstreamStatus

SINCE = datetime.fromtimestamp(1000, UTC)
THERE = WalstreamSession("ipv4:127.0.0.1:1", "db1:7", SINCE, 4711, 312, 4399, None, None, True)


def gone() -> WalstreamSession:
    """It ended 20 s ago."""
    now = datetime.now(UTC)
    began, ended = now - timedelta(hours=3), now - timedelta(seconds=20)
    return WalstreamSession("ipv4:127.0.0.1:2", "db1:7", began, None, 0, 4711, ended, 41.5, False)


def metrics(found: WalstreamStatus | None) -> list[str]:
    class Collected(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from walstream_metrics.collect(found)

    registry = CollectorRegistry()
    registry.register(Collected())
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_metrics_of_those_that_are_there_and_how_many_are_waited_for() -> None:
    assert metrics(WalstreamStatus(True, 5, [THERE, gone()])) == [
        'pipeline_walstream_sessions{state="connected"} 1.0',
        'pipeline_walstream_sessions{state="waited for"} 1.0',
        "pipeline_walstream_shortened_total 5.0",
        'pipeline_walstream_session_unacknowledged{peer="ipv4:127.0.0.1:1"} 312.0',
        'pipeline_walstream_session_since_timestamp_seconds{peer="ipv4:127.0.0.1:1"} 1000.0',
    ]


@pytest.mark.parametrize("found", [None, WalstreamStatus(served=False)])
def test_no_metrics_where_the_wire_is_not_served_and_no_session_is_left(found: WalstreamStatus | None) -> None:
    assert metrics(found) == []


def test_status_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    drawing.show(*shown.sections(WalstreamStatus(True, 0, [THERE, gone()])))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:3] == ["walstream", "sessions", "(2)"]
    assert (lines[1][0], lines[1][-2:]) == ("ipv4:127.0.0.1:1", ["4399", "312"])
    assert " ".join(lines[2]) == "ipv4:127.0.0.1:2 3 h - 4711 0 ended 20 s ago, holds the position for 42 s more"


def test_nothing_is_shown_where_nobody_is() -> None:
    assert list(shown.sections(WalstreamStatus(served=True))) == list(shown.sections(None)) == []
