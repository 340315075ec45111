"""The status as Prometheus metrics, all named `pipeline_*`. This process itself counts nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pipeline.capture.catchup.plan import BacklogPart
from pipeline.consumers.status import ConsumerStatus
from pipeline.exports.status import ExportStatus
from pipeline.followers.operating import follower_metrics
from pipeline.log.latency import CommitLatency
from pipeline.log.tables import KnownTable
from pipeline.operate.lag.lag_metrics import collect_lag
from pipeline.operate.retention import RetentionStatus
from pipeline.operate.status import PipelineStatus
from pipeline.operate.verify.verifications import StoredVerification
from pipeline.operate.ways import WayCount
from pipeline.snapshots.snapshot_status import SnapshotStatus
from pipeline.version import installed_version
from pipeline.wires.pgdeltastream import metrics
from pipeline.wires.walstream import walstream_metrics

_GAUGES: dict[str, tuple[str, str]] = {
    "source_lsn_bytes": ("source_lsn", "The source's end of WAL, as a number of bytes."),
    "confirmed_lsn_bytes": ("confirmed_lsn", "The LSN up to which the slot is confirmed."),
    "staged_lsn_bytes": ("staged_lsn", "The LSN up to which changes are staged."),
    "shuffled_lsn_bytes": ("shuffled_lsn", "The LSN of the last transaction in the events table."),
    "slot_retained_bytes": ("retained_bytes", "Bytes of WAL that the source keeps for the slot."),
    "slot_safe_wal_bytes": (
        "safe_wal_bytes",
        "Bytes of WAL that the source may still write before it can remove WAL that the slot needs.",
    ),
    "last_seq": ("last_seq", "Newest seq in the events table."),
    "open_transaction_changes": ("open_changes", "Staged changes of a transaction that has not ended yet."),
}
_COUNTERS: dict[str, tuple[str, str]] = {
    "staged_changes": ("staged_changes", "Changes staged since the first start."),
    "staged_transactions": ("staged_transactions", "Transactions staged since the first start."),
    "events": ("events", "Events written since the first start."),
}


def render(status: PipelineStatus, *, leads: bool = False) -> bytes:
    """A status in Prometheus' exposition format. `leads`: this server writes the log."""
    return _render(_Snapshot(status, leads))


def render_unavailable() -> bytes:
    """Return the metrics that are known while the pipeline database does not answer."""
    return _render(_Constant([_up(pipeline=False), _build(installed_version()), _ready(replicating=False)]))


def _render(collector: Collector) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)


class _Constant(Collector):
    def __init__(self, found: Sequence[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that were given."""
        yield from self._found


class _Snapshot(Collector):
    def __init__(self, status: PipelineStatus, leads: bool) -> None:
        self._status, self._leads = status, leads

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of the snapshot that has a value."""
        yield _up(pipeline=True, source=self._status.source_version is not None)
        yield _build(self._status.version)
        yield GaugeMetricFamily("pipeline_leader", "1 on the server that writes the log.", value=float(self._leads))
        values = {**vars(self._status.progress), **vars(self._status)}
        for name, (attribute, text) in _GAUGES.items():
            if values[attribute] is not None:
                yield GaugeMetricFamily(f"pipeline_{name}", text, value=values[attribute])
        for name, (attribute, text) in _COUNTERS.items():
            yield CounterMetricFamily(f"pipeline_{name}", text, value=values[attribute])
        yield from collect_lag(self._status.lag, self._status.lag_bytes, self._status.lag_seconds)
        yield from _latency(self._status.commit_to_inserted)
        yield from _ways(self._status.ways)
        role_up = GaugeMetricFamily("pipeline_role_running", "1 while the role is held and running.", labels=["role"])
        for role in self._status.roles:
            role_up.add_metric([role.role], float(role.held and role.state == "running"))
        yield role_up
        yield from _failed_schedules(self._status.failed_schedules)
        yield _ready(self._status.replicating)
        yield GaugeMetricFamily(
            "pipeline_tables_not_captured",
            "Tables of which some changes are not captured.",
            value=len(self._status.not_captured),
        )
        yield GaugeMetricFamily(
            "pipeline_tables_rewritten",
            "Tables that were rewritten without events, and not compared with the log since.",
            value=len(self._status.rewritten),
        )
        yield from _of_jobs(self._status)
        yield from _slots(self._status)
        yield from _parts(self._status.catchup)
        yield from metrics.collect(self._status.sessions)
        yield from walstream_metrics.collect(self._status.walstream)
        yield from _tables(self._status.events_tables)
        yield from _consumers(self._status.consumers)
        yield from follower_metrics.collect(self._status.followers)
        yield from _dead_letters(self._status.dead_letters)


def _up(**databases: bool) -> Metric:
    """1 for each database that answered, 0 for one that did not."""
    family = GaugeMetricFamily("pipeline_up", "1 if the database answers this server.", labels=["database"])
    for name, answers in databases.items():
        family.add_metric([name], float(answers))
    return family


def _build(version: str) -> Metric:
    family = GaugeMetricFamily("pipeline_build_info", "1; the label has this server's version.", labels=["version"])
    family.add_metric([version], 1.0)
    return family


def _ready(replicating: bool) -> Metric:
    return GaugeMetricFamily("pipeline_ready", "1 while replicating.", value=float(replicating))


def _latency(measured: CommitLatency | None) -> Iterator[Metric]:
    """Quantiles of the time from commit to insert; no metric without an event."""
    if measured is None:
        return
    text = "Seconds from the commit at the source to the insert into the events table, of the newest 1,000 events."
    family = GaugeMetricFamily("pipeline_commit_to_inserted_seconds", text, labels=["quantile"])
    family.add_metric(["0.5"], measured.median_seconds)
    family.add_metric(["0.99"], measured.p99_seconds)
    yield family


def _failed_schedules(found: Mapping[str, str]) -> Iterator[Metric]:
    """The schedules that failed when they last ran."""
    family = GaugeMetricFamily(
        "pipeline_schedule_failed", "1 if the schedule failed when it last ran; else no value.", labels=["schedule"]
    )
    for name in found:
        family.add_metric([name], 1.0)
    if family.samples:
        yield family


def _of_jobs(now: PipelineStatus) -> Iterator[Metric]:
    """The metrics of exports, retention, snapshots and verification, as far as they have run."""
    if now.exports:
        yield from _exports(now.exports)
    if now.retention:
        yield from _retention(now.retention)
    if now.snapshots:
        yield from _snapshots(now.snapshots)
    if now.verification:
        yield from _verification(now.verification)


def _slots(now: PipelineStatus) -> Iterator[Metric]:
    """The lag of each of our slots behind the source's end of WAL, and if standbys have a copy of the slot."""
    if now.failover and now.failover.ready is not None:
        text = "1 if each standby in PIPELINE_SOURCE_DSN that answers has a copy of the slot."
        yield GaugeMetricFamily("pipeline_slot_failover_ready", text, value=float(now.failover.ready))
    lag = GaugeMetricFamily(
        "pipeline_slot_lag_bytes", "WAL that the source has written and the slot has not confirmed.", labels=["slot"]
    )
    for slot in now.slots:
        if slot.lag_bytes is not None:
            lag.add_metric([slot.name], float(slot.lag_bytes))
    if lag.samples:
        yield lag


def _parts(found: Sequence[BacklogPart]) -> Iterator[Metric]:
    """The plan of a catch-up; 0 parts when none is running."""
    yield GaugeMetricFamily(
        "pipeline_catchup_parts", "Parts in which a backlog is read now; 0 if none.", value=len(found)
    )
    for name, attribute, text in (
        ("position_lsn_bytes", "position", "The LSN up to which the part is staged."),
        ("left_bytes", "left_bytes", "Bytes of WAL of the part that are not staged yet; the last part has no end."),
        ("reached", "reached", "1 when everything before the part is staged."),
    ):
        family = GaugeMetricFamily(f"pipeline_catchup_part_{name}", text, labels=["worker"])
        for part in found:
            if (value := getattr(part, attribute)) is not None:
                family.add_metric([str(part.worker)], float(value))
        if family.samples:
            yield family


def _tables(found: Sequence[KnownTable]) -> Iterator[Metric]:
    """The newest seq of each events table, and the number of events written to it."""
    newest = GaugeMetricFamily("pipeline_events_table_last_seq", "Newest seq of an events table.", labels=["table"])
    events = CounterMetricFamily("pipeline_events_table_events", "Events written to an events table.", labels=["table"])
    for each in found:
        newest.add_metric([each.name], float(each.last_seq or 0))
        events.add_metric([each.name], float(each.events))
    yield newest
    yield events


def _ways(found: Sequence[WayCount]) -> Iterator[Metric]:
    """The number of changes by the way that they took into the log."""
    text = "Changes by the way that they took into the log, and why they did not take the shortest way."
    family = CounterMetricFamily("pipeline_way_changes", text, labels=["way", "reason"])
    for each in found:
        family.add_metric([each.way, each.reason], float(each.changes))
    yield family


def _consumers(found: Sequence[ConsumerStatus]) -> Iterator[Metric]:
    """Metrics of consumers, each for the consumers to which it applies. Counts stop at 100 000."""
    for name, attribute, text in (
        ("pending", "pending", "Items that wait to be received."),
        ("in_flight", "in_flight", "Items that are delivered and neither acknowledged nor expired."),
        ("dead", "dead", "Items that were delivered too often."),
        ("oldest_pending_seconds", "oldest_pending_seconds", "Age of the change that has waited longest."),
        (
            "position_seq",
            "position",
            "For a cursor: the last acknowledged seq; for records: the seq after which the consumer began.",
        ),
        ("lag_seqs", "lag", "Seqs from the consumer's position in the log to the newest event."),
    ):
        family = GaugeMetricFamily(f"pipeline_consumer_{name}", text, labels=["consumer"])
        for each in found:
            if (value := getattr(each, attribute)) is not None:
                family.add_metric([each.name], float(value))
        if family.samples:
            yield family
    text = "1 for the events table that a consumer reads, if it is not the default table."
    reads = GaugeMetricFamily("pipeline_consumer_reads", text, labels=["consumer", "table"])
    for each in found:
        if each.events_table is not None:
            reads.add_metric([each.name, each.events_table], 1)
    if reads.samples:
        yield reads


def _dead_letters(counts: Mapping[str, int]) -> Iterator[Metric]:
    """Dead letters by state; no metric if there are no counts."""
    family = GaugeMetricFamily(
        "pipeline_dead_letters", "Changes that could not be written, by state.", labels=["state"]
    )
    for state, number in counts.items():
        family.add_metric([state], float(number))
    if family.samples:
        yield family


def _exports(now: ExportStatus) -> Iterator[Metric]:
    """Metrics of exports that have a value; none if nothing was ever exported."""
    success = now.last_success.timestamp() if now.last_success else None
    failed = None if now.last_run is None else float(now.last_run.state == "failed")
    for name, text, value in (
        ("exported_seq", "Everything up to this seq is in the lake.", now.exported_seq),
        ("behind_seqs", "Seqs from the last exported one to the newest.", now.behind_seqs),
        ("last_success_timestamp_seconds", "When the last successful export ended.", success),
        ("failed", "1 when the last export run failed.", failed),
    ):
        if value is not None:
            yield GaugeMetricFamily(f"pipeline_export_{name}", text, value=value)


def _snapshots(now: SnapshotStatus) -> Iterator[Metric]:
    """Captured tables by state, and the progress of each running backfill."""
    tables = GaugeMetricFamily(
        "pipeline_snapshot_tables",
        "Captured tables by state; complete: the log has all of the table.",
        labels=["state"],
    )
    for state, number in now.tables.items():
        tables.add_metric([state], float(number))
    if tables.samples:
        yield tables
    for name, attribute, text in (
        ("ranges_done", "ranges_done", "Ranges whose rows are events."),
        ("ranges", "ranges_all", "All ranges of the backfill; 0 before it is planned."),
        ("rows", "rows", "Rows that became events."),
    ):
        family = GaugeMetricFamily(f"pipeline_backfill_{name}", text, labels=["backfill", "table", "kind"])
        for each in now.backfills:
            family.add_metric([str(each.id), each.table, each.kind], float(getattr(each, attribute)))
        if family.samples:
            yield family


def _verification(last: StoredVerification) -> Iterator[Metric]:
    """The result of the last content verification."""
    for name, text, value in (
        ("finished_timestamp_seconds", "When the log was last compared with the source.", last.finished_at.timestamp()),
        ("rows", "Rows of the source that were compared in the last verification.", last.rows),
        ("differing_rows", "Rows that differed in the last verification.", last.differing),
        ("unknown_rows", "Rows of which the log lacks some values.", last.unknown),
        ("refused_tables", "Tables that could not be compared.", last.tables_refused),
        ("through_lsn_bytes", "The LSN before which every commit was compared.", last.verified_through),
    ):
        if value is not None:
            yield GaugeMetricFamily(f"pipeline_verification_{name}", text, value=value)


def _retention(now: RetentionStatus) -> Iterator[Metric]:
    """The dropped events, the size of the log, and the readers that hold old events."""
    oldest = now.oldest_at.timestamp() if now.oldest_at else None
    for name, text, value in (
        ("dropped_below_seq", "The first kept seq: every event with a smaller seq was dropped.", now.dropped_below),
        ("log_bytes", "Bytes that the events table takes on disk.", now.bytes or None),
        ("oldest_timestamp_seconds", "When the oldest event of the log arrived.", oldest),
    ):
        if value is not None:
            yield GaugeMetricFamily(f"pipeline_retention_{name}", text, value=value)
    held = GaugeMetricFamily(
        "pipeline_retention_held",
        "1 for each reader that holds events that are old enough to drop.",
        labels=["kind", "name"],
    )
    for holder in now.held_by:
        held.add_metric([holder.kind, holder.name], 1.0)
    yield held
