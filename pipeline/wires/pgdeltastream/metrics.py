"""Sessions of other systems' wires as Prometheus metrics: how many, what each holds back, and the limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from pipeline.wires.pgdeltastream.status import STATES, SessionsReport


def collect(found: SessionsReport | None) -> Iterator[Metric]:
    """Yield the metrics of sessions; none if no wire is served and no session exists."""
    if found is None or not (found.wires or found.live):
        return
    by_state = Counter(each.state for each in found.live)
    states = GaugeMetricFamily("pipeline_sessions", "Sessions of other systems' clients, by state.", labels=["state"])
    for state in STATES:
        states.add_metric([state], float(by_state[state]))
    yield states
    for name, text, value in (
        ("max", "How many sessions there may be.", found.most),
        ("idle_limit_seconds", "For how long a session may be unused.", found.idle_limit_seconds),
        ("wal_limit_bytes", "How much WAL a session may hold back at the source.", found.wal_limit_bytes),
    ):
        yield GaugeMetricFamily(f"pipeline_sessions_{name}", text, value=value)
    yield from _each(found)


def _each(found: SessionsReport) -> Iterator[Metric]:
    retained = GaugeMetricFamily(
        "pipeline_session_retained_bytes", "WAL that the source keeps for the session's slot.", labels=["slot", "wire"]
    )
    used = GaugeMetricFamily(
        "pipeline_session_used_timestamp_seconds",
        "When a session that no client streams was last used.",
        labels=["slot", "wire"],
    )
    for each in found.live:
        if each.retained_bytes is not None:
            retained.add_metric([each.slot, each.wire], float(each.retained_bytes))
        if each.state != "streamed":
            used.add_metric([each.slot, each.wire], each.used_at.timestamp())
    yield from (family for family in (retained, used) if family.samples)
