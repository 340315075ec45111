"""The lag as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from pipeline.operate.lag.model import PARTS, LagReport

_UNITS = {
    "bytes": ("WAL of the source that is not in the events table yet.", "WAL of the source that is not there yet."),
    "seconds": (
        "Age of the oldest change that is not in the events table yet, 0 if all are.",
        "Age of the oldest change that is not there yet, 0 if all are.",
    ),
}


def collect_lag(report: LagReport | None, lag_bytes: int | None, lag_seconds: float | None) -> Iterator[Metric]:
    """Yield the lag of the events table, and the lag of each stage.

    Until the version after 0.1.0, the lag of stages is also under the names of the table's lag.
    """
    stages = report.stages if report else []
    of_table = {"bytes": lag_bytes, "seconds": lag_seconds}
    of_stages: dict[str, dict[str, float | None]] = {
        "bytes": {stage.stage: stage.behind_bytes for stage in stages},
        "seconds": {stage.stage: stage.behind_seconds for stage in stages},
    }
    if report and not stages:
        of_stages["seconds"]["shuffled"] = lag_seconds  # alerts need the lag even if the source does not answer
    for unit, (text, stage_text) in _UNITS.items():
        table = GaugeMetricFamily(f"pipeline_lag_{unit}", text, labels=["stage"])
        stage = GaugeMetricFamily(f"pipeline_stage_lag_{unit}", stage_text, labels=["stage"])
        if (value := of_table[unit]) is not None:
            table.add_metric([], value)
        for name, value in of_stages[unit].items():
            if value is not None:
                table.add_metric([name], value)
                stage.add_metric([name], value)
        yield from (family for family in (table, stage) if family.samples)
    if report:
        text = "1 for the part that is the main cause of lag."
        limited = GaugeMetricFamily("pipeline_lag_limited_by", text, labels=["part"])
        for part in PARTS:
            limited.add_metric([part], float(part == report.limits[0].part))
        yield limited
