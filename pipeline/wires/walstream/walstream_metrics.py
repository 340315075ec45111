"""Reports sessions of walstream's clients as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pipeline.wires.walstream.status import WalstreamStatus


def collect(found: WalstreamStatus | None) -> Iterator[Metric]:
    """Yield the metrics of the wire; none if it is not served and no session is left."""
    if found is None or not (found.served or found.sessions):
        return
    there = [each for each in found.sessions if each.connected]
    sessions = GaugeMetricFamily(
        "pipeline_walstream_sessions", "Sessions of walstream's clients, by state.", labels=["state"]
    )
    sessions.add_metric(["connected"], len(there))
    sessions.add_metric(["waited for"], len(found.sessions) - len(there))
    yield sessions
    yield CounterMetricFamily(
        "pipeline_walstream_shortened", "Events that went out without their largest values.", value=found.shortened
    )
    for name, text in (
        ("unacknowledged", "Events that a session was sent and has not acknowledged."),
        ("since_timestamp_seconds", "When a session began."),
    ):
        family = GaugeMetricFamily(f"pipeline_walstream_session_{name}", text, labels=["peer"])
        for each in there:
            value = each.unacknowledged if name == "unacknowledged" else each.since.timestamp()
            family.add_metric([each.peer], value)
        if family.samples:
            yield family
