"""Followers as Prometheus metrics: how far each is behind the log, and what it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from pipeline.followers.operating.status import FollowerStatus
from pipeline.followers.registry import STATES


def collect(found: Sequence[FollowerStatus]) -> Iterator[Metric]:
    """Yield the metrics of these followers; none if there are no followers."""
    seqs = GaugeMetricFamily("pipeline_follower_lag_seqs", "Seqs that a follower has not applied.", labels=["follower"])
    seconds = GaugeMetricFamily(
        "pipeline_follower_lag_seconds", "Age of the first event that a follower has not applied.", labels=["follower"]
    )
    states = GaugeMetricFamily(
        "pipeline_follower_state", "1 for the state that a follower is in.", labels=["follower", "state"]
    )
    lacking = GaugeMetricFamily(
        "pipeline_follower_lacks_tables", "Tables of a follower that it does not follow.", labels=["follower"]
    )
    stopped = GaugeMetricFamily(
        "pipeline_follower_stopped_table", "1 for a table that cannot be copied.", labels=["follower", "table"]
    )
    for each in found:
        seqs.add_metric([each.name], float(each.lag_seqs))
        seconds.add_metric([each.name], each.lag_seconds)
        lacking.add_metric([each.name], float(len(each.not_followed)))
        for table in each.tables:
            if table.state == "stopped":
                stopped.add_metric([each.name, table.table], 1.0)
        for state in STATES:
            states.add_metric([each.name, state], float(each.state == state))
    yield from (family for family in (seqs, seconds, states, lacking, stopped) if family.samples)
