"""Lag as Prometheus metrics: by stage, and which part limits it."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from pipeline.operate.lag.model import PARTS
from pipeline.operate.status import Status


def collect(status: Status) -> Iterator[Metric]:
    """Two families: without a label what is not in the events table yet, with `stage` what has not passed the stage."""
    size = GaugeMetricFamily(
        "pipeline_lag_bytes", "WAL of the source that is not in the events table yet; by stage.", labels=["stage"]
    )
    seconds = GaugeMetricFamily(
        "pipeline_lag_seconds", "Age of what is not in the events table yet, 0 when it is; by stage.", labels=["stage"]
    )
    if status.lag_bytes is not None:
        size.add_metric([], status.lag_bytes)
    if status.lag_seconds is not None:
        seconds.add_metric([], status.lag_seconds)
    for stage in status.lag.stages if status.lag else ():
        size.add_metric([stage.stage], stage.behind_bytes)
        if stage.behind_seconds is not None:
            seconds.add_metric([stage.stage], stage.behind_seconds)
    if status.lag and not status.lag.stages and status.lag_seconds is not None:
        seconds.add_metric(["shuffled"], status.lag_seconds)  # the source does not answer; alerts need it all the more
    yield from (family for family in (size, seconds) if family.samples)
    if status.lag:
        limited = GaugeMetricFamily("pipeline_lag_limited_by", "1 for the part that limits.", labels=["part"])
        for part in PARTS:
            limited.add_metric([part], float(part == status.lag.limits[0].part))
        yield limited
