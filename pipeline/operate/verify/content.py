"""`pipeline verify --content`: check table by table that the log has every row as the source has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic, sleep

import psycopg

from pipeline.capture.replication import still_published
from pipeline.capture.schema_history import rewrites, versions
from pipeline.capture.source import captured_now, missing_source, publication_ledger, sources
from pipeline.capture.source.captured_now import CapturedTable
from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing import compared_table, differences
from pipeline.comparing.comparison import ContentComparison
from pipeline.comparing.log_state import Key, TableTruncatedError
from pipeline.config.settings import Config
from pipeline.errors import NotComparableError, PipelineError
from pipeline.log import tables
from pipeline.log.retention import policy
from pipeline.operate.verify import verifications
from pipeline.operate.verify.verifications import ContentReport, TableVerification
from pipeline.postgres import connections, migrations, reading_session, role_locks
from pipeline.postgres.connections import Connection
from pipeline.postgres.session_settings import SNAPSHOT
from pipeline.snapshots import known_tables, overview, start, to_read
from pipeline.snapshots.former_keys import FormerKeys
from pipeline.snapshots.overview import TableCoverage

SHOWN = 100
"""The number of differing rows of a table that are named; all are counted."""
TRIES = 3
"""The number of attempts to compare a table that is truncated during the comparison."""
RESTART_SECONDS, _ASK_EVERY = 10.0, 0.1
"""Seconds to wait for a role that just ended, and seconds between two checks of the roles."""
OnLook = Callable[[str, int, int, int], None]
"""Called after each step with the table, the rows compared so far, the parts so far, and the number of all parts."""


def run(
    config: Config,
    names: Sequence[str],
    share: float = 1.0,
    on_look: OnLook = lambda *_: None,
    stopping: Callable[[], bool] = lambda: False,
    *,
    asked_by: str,
) -> ContentReport:
    """Compare these tables, or all captured tables. `share`: above 0, at most 1. A server must run.

    The result is kept in `pipeline.verifications`, unless `stopping` ended the comparison. Raises PipelineError if no
    server runs, TableRefusedError for a name that is no captured table.
    """
    started, name = datetime.now(UTC), "pipeline verify"
    with (
        connections.connect(config.database, "pipeline database", name=name) as pipeline,
        reading_session.connect(config, name=name, settings=SNAPSHOT) as source,
    ):
        migrations.require_head(pipeline)
        stored = sources.find(pipeline, config.source_id)
        if stored is None:
            raise PipelineError(missing_source.explain_missing_source(pipeline))
        _require_server(pipeline)
        with reading_session.transaction(source, SNAPSHOT):
            still_published.require_published(source, pipeline, stored)
            captured = captured_now.read(config, source, pipeline, stored)
            named = [start.captured_table(source, each, captured) for each in names]
        chosen = named or list(captured.values())
        run_of = _Run(source, pipeline, stored, share, on_look, stopping)
        found = [run_of.compare(table) for table in sorted(set(chosen), key=lambda table: (table.schema, table.name))]
        content = ContentReport(started, share, bool(names), found)
        if not stopping():
            verifications.add(pipeline, stored, content, asked_by)
    return content


def _require_server(pipeline: Connection) -> None:
    """Wait until replication and shuffling run. If only another role runs, these roles may just be restarting."""
    deadline = monotonic() + RESTART_SECONDS
    while missing := _missing(states := role_locks.states(pipeline)):
        runs = any(state.held for state in states.values()) or role_locks.server_starts(pipeline, missing[0])
        if monotonic() > deadline or not runs:
            raise PipelineError(
                f"content is compared while a server replicates: {' and '.join(missing)} does not run;"
                " start `pipeline serve`"
            )
        sleep(_ASK_EVERY)


def _missing(states: Mapping[str, role_locks.RoleState]) -> list[str]:
    return [name for name in ("replication", "shuffle") if name not in states or not states[name].held]


class _Run:
    def __init__(
        self,
        source: Connection,
        pipeline: Connection,
        stored: ReplicationSource,
        share: float,
        on_look: OnLook,
        stopping: Callable[[], bool],
    ) -> None:
        self._source, self._pipeline, self._stored = source, pipeline, stored
        self._share, self._on_look, self._stopping = share, on_look, stopping
        self._whole: Mapping[int, TableCoverage] = overview.whole_tables(pipeline, stored.id)

    def compare(self, table: CapturedTable) -> TableVerification:
        """Compare one table. If it cannot be compared, the result says why."""
        name, began = f"{table.schema}.{table.name}", monotonic()
        try:
            with reading_session.transaction(self._source, SNAPSHOT):
                self._require_known(table, name)
            found = self._try(table, name)
        except NotComparableError as error:
            return TableVerification(name, "refused", str(error))
        except psycopg.Error as error:
            if self._source.closed or self._pipeline.closed:
                raise
            return TableVerification(name, "refused", f"{connections.one_line(error)}; run it again")
        found.seconds = round(monotonic() - began, 3)
        return found

    def _try(self, table: CapturedTable, name: str) -> TableVerification:
        for left in reversed(range(TRIES)):
            try:
                return self._compare(table, name)
            except TableTruncatedError:
                if not left:
                    raise
        raise AssertionError

    def _compare(self, table: CapturedTable, name: str) -> TableVerification:
        with reading_session.transaction(self._source, SNAPSHOT):
            shape = compared_table.read(self._source, self._pipeline, self._stored, table.oid)
        found, parts = TableVerification(name, "equal"), 0
        named: set[Key] = set()
        comparison = ContentComparison(self._source, self._pipeline, self._stored, shape, self._stopping)
        for looked, state in comparison.run(self._share):
            parts += looked.parts
            found.rows += looked.rows
            found.verified_through = found.verified_through or looked.lsn
            self._on_look(name, found.rows, parts, round(self._share * looked.parts_of_table))
            for each in differences.confirm(comparison, state, looked.keys):
                # If texts sort differently at the source, a row may be in two parts.
                fresh = [difference for difference in each.differences if difference.key not in named]
                named.update(difference.key for difference in fresh)
                found.unknown += each.unknown
                found.differences += fresh[: SHOWN - len(found.differences)]
        if named:
            with reading_session.transaction(self._source, SNAPSHOT):
                self._require_unaltered(table, name, shape)
        found.differing = len(named)
        found.state = "differs" if found.differing else "equal"
        return found

    def _require_unaltered(self, table: CapturedTable, name: str, shape: compared_table.ComparableTable) -> None:
        """Raise NotComparableError if DDL explains differences, including DDL that the stream has not shown yet."""
        if compared_table.read(self._source, self._pipeline, self._stored, table.oid) != shape:
            raise NotComparableError("the table was altered while it was compared; run the command again")
        for known in versions.latest(self._pipeline, self._stored.id, self._stored.epoch).values():
            if known.version.table_oid != table.oid:
                continue
            if any(each.kind != "renamed" for each in rewrites.find_rewrites(self._source, known, self._stored.slot)):
                raise NotComparableError(
                    "DDL has just changed the table's values without events; run the command again"
                )
        self._whole = overview.whole_tables(self._pipeline, self._stored.id)
        self._require_known(table, name)
        before = known_tables.read(self._pipeline, self._stored).get(table.oid)
        former = FormerKeys(self._source, self._pipeline, self._stored)
        former.read_new_versions()
        if before is None or known_tables.has_joined(table, before, None) or former.had_another(table, before):
            raise NotComparableError("the table has just got another key; run the command again")

    def _require_not_rewritten(self, table: CapturedTable, name: str) -> None:
        for each in rewrites.read_unsettled(self._pipeline, self._stored.id):
            if each.table_oid == table.oid:
                raise NotComparableError(
                    f"DDL has changed the table's values without events ({each.why}); `pipeline backfill start"
                    f" {name} --differences` adds them to the log"
                )

    def _require_known(self, table: CapturedTable, name: str) -> None:
        """Raise NotComparableError if the log does not have the complete table, or we may not read the table."""
        if not table.keyed:
            raise NotComparableError("the table has no key that identifies its rows")
        remedy = f"`pipeline backfill start {name}` reads its rows"
        whole = self._whole.get(table.oid)
        if whole is None or whole.from_seqs is None:
            reason = whole.reason if whole else None
            raise NotComparableError(reason or f"the log does not have the complete table yet; {remedy}")
        for events in tables.with_known(self._pipeline, []):
            below = policy.dropped(self._pipeline, events).below
            if below > whole.from_seqs.get(str(events), 0) + 1:
                raise NotComparableError(
                    f"retention dropped events of {events} below seq {below:,}, perhaps of this table, too; {remedy}"
                )
        self._require_not_rewritten(table, name)
        publications = list(publication_ledger.known_publications(self._stored))
        for relation in to_read.relations(self._source, [table.oid], publications, sized=False):
            if relation.refused:
                raise NotComparableError(relation.refused)
