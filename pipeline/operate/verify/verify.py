"""Check the rules of the log on its rows: order, positions in a transaction, complete transactions, progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from pipeline.capture.source import publication_form, slots, sources
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.errors import ConfigError, PipelineError
from pipeline.log import tables
from pipeline.log.retention import policy
from pipeline.log.table import EventsTable
from pipeline.operate.verify import violations
from pipeline.operate.verify.across_tables import AcrossTables
from pipeline.operate.verify.violations import LogVerification, Row, RuleCheck, of_row, place
from pipeline.postgres import connections, migrations, queries
from pipeline.postgres.connections import Connection
from pipeline.terminal import drawing
from pipeline.wal import lsn

OnRange = Callable[[int, int, int], None]
"""Called after each range with the first seq, the seq that was reached, and the last seq."""
NO_ROW: Row = dict.fromkeys(("seq", "source_epoch", "commit_lsn", "commit_idx", "xid", "committed_at", "kind"))
SETTINGS = ("enable_sort = off", "enable_bitmapscan = off", "timezone = 'UTC'")
"""Settings that make Postgres always use the index on seq: statistics of the newest partition may be missing."""
_VERIFY_HEADS = "select name, coalesce(last_seq, 0) from pipeline.events_tables where source_id = %(source)s"
"""The last seq of each events table of a source, at one moment."""


def run(config: Config, from_seq: int, range_rows: int, on_range: OnRange) -> LogVerification:
    """Check the events tables, the default one from a seq on, up to the newest event that exists now.

    May run while a shuffler runs.

    `range_rows`: rows that one statement reads; no snapshot is held for longer.
    Raises SchemaError for a database without our tables, ConfigError for an events table that does not exist.
    """
    table = EventsTable.parse(config.events_table)
    with connections.connect_promptly(config.database, "pipeline database", name="pipeline verify") as connection:
        _require_tables(connection, table)
        source = sources.find(connection, config.source_id)
        if source is None:
            return LogVerification(events_table=str(table))
        for setting in SETTINGS:
            connection.execute(f"set {setting}")
        written = tables.with_known(connection, [config.events_table])
        if len(written) == 1:
            return _Verifier(config, connection, source, table, from_seq).run(range_rows, on_range)
        return _all(config, connection, source, written, from_seq, range_rows, on_range)


def _all(
    config: Config,
    connection: Connection,
    source: ReplicationSource,
    written: Sequence[EventsTable],
    from_seq: int,
    range_rows: int,
    on_range: OnRange,
) -> LogVerification:
    """Check each table by itself, then all together. `from_seq` applies to the first table; others are read in full."""
    query = _VERIFY_HEADS
    heads: dict[str, int] = dict(connection.execute(query, {"source": source.id}).fetchall())
    started = time.monotonic()
    found = [
        _Verifier(config, connection, source, table, 1 if number else from_seq, alone=False).run(range_rows, on_range)
        for number, table in enumerate(written)
    ]
    for each in found[1:]:
        for check in each.checks:
            check.name = f"{check.name} ({each.events_table})"
    together = AcrossTables(connection, source.id, {table: heads.get(str(table), 0) for table in written})
    if from_seq > 1:
        together.check.not_checked = f"read from seq {from_seq} only"
    else:
        together.run()
    return replace(
        found[0],
        rows=sum(each.rows for each in found),
        unplaced=sum(each.unplaced for each in found),
        transactions=sum(each.transactions for each in found),
        seconds=round(time.monotonic() - started, 3),
        checks=[*(check for each in found for check in each.checks), together.check],
        tables=[str(table) for table in written],
    )


def _require_tables(connection: Connection, table: EventsTable) -> None:
    migrations.require_head(connection)
    row = connection.execute("select to_regclass(%s)", (table.identifier.as_string(connection),)).fetchone()
    if row is None or row[0] is None:
        raise ConfigError(f"the events table {table} does not exist; correct PIPELINE_EVENTS_TABLE")


class _Verifier:
    """One run over one events table. The head is fixed at the start: rows up to the head never change."""

    def __init__(
        self,
        config: Config,
        connection: Connection,
        source: ReplicationSource,
        table: EventsTable,
        from_seq: int,
        *,
        alone: bool = True,
    ) -> None:
        """Prepare the checks of a table. `alone`: True if no other table has changes of the same transactions."""
        self._config = config
        self._connection = connection
        self._source = source
        self._from_seq = from_seq
        self._names: dict[str, sql.Composable] = {"events": table.identifier, "sequence": table.sequence}
        self._names["rows"] = self._statement("verify_rows")
        self._names["counted"] = self._statement("verify_counted")
        self._alone = alone
        self._table = table
        self._rows = self._placed = self._transactions = self._retried = 0
        self._skips: list[Row] = []
        self.order = RuleCheck("order", "(source_epoch, commit_lsn, commit_idx) grows with seq", "row")
        self.places = RuleCheck("commit_idx", f"counts from 0, {violations.GAPS}", "row")
        self.whole = RuleCheck(
            "transactions", "one xid, one committed_at, rows side by side, all read or none", "transaction"
        )
        self.watermark = RuleCheck("watermark", "is the newest transaction of the log, and no row is beyond", "value")
        self.progress = RuleCheck("events", "as many rows as the shuffler has counted", "row")
        self.positions = RuleCheck(
            "positions", "staged, sequence and slot agree with the log; publications hide nothing", "value"
        )
        self._row_checks = {"disordered": self.order, "gapped": self.places, "torn": self.whole}
        if not alone:  # positions in a transaction are checked in all tables together
            del self._row_checks["gapped"]
            self.watermark = RuleCheck("watermark", "is not before any row", "value")

    def run(self, range_rows: int, on_range: OnRange) -> LogVerification:
        """Run every check, reading the rows range by range."""
        started = time.monotonic()
        progress = self._read_head()
        if progress is None:
            return LogVerification(str(self._source.id), str(self._table))
        self._read_rows(progress["last_seq"], range_rows, on_range)
        self._check_retried(progress["last_seq"])
        self._check_events(progress["events"], "events_tables" if progress["counted_by_table"] else "shuffle_progress")
        return LogVerification(
            source_id=str(self._source.id),
            events_table=str(self._table),
            first_seq=max(self._from_seq, self._dropped_below()),
            last_seq=progress["last_seq"],
            rows=self._rows,
            unplaced=self._rows - self._placed,
            transactions=self._transactions,
            seconds=round(time.monotonic() - started, 3),
            checks=[
                self.order,
                *([self.places] if self._alone else []),
                *(self.whole, self.watermark, self.progress, self.positions),
            ],
        )

    def _read_head(self) -> Row | None:
        """Read positions and the newest rows in one snapshot.

        The slot is read before, so that its position never exceeds them.
        """
        confirmed = confirmed_position(self._config, self._source.publications, self.positions)
        with self._connection.transaction():
            self._connection.execute("set transaction isolation level repeatable read read only")
            progress = self._row("verify_progress", {"table": str(self._table)})
            if progress is None:
                return None
            newest = self._row("verify_row", {"seq": progress["last_seq"]})
            beyond = self._all("verify_beyond", {"head": progress["last_seq"], "shown": violations.SHOWN})
            self._check_watermark(progress, newest)
        for row in beyond:
            self.watermark.add(of_row(row, "is beyond the watermark", f"no row after seq {progress['last_seq']}"))
        self.watermark.broken += (beyond[0]["found"] if beyond else 0) - len(beyond)
        check_positions(self.positions, progress, beyond[-1] if beyond else newest, self._config.slot, confirmed)
        return progress

    def _check_watermark(self, progress: Row, newest: Row | None) -> None:
        check, at = self.watermark, progress["commit_lsn"]
        if newest is None or newest["commit_lsn"] is None:
            wrong, expected = (
                f"{drawing.count(progress['events'], 'event')} counted, and no row",
                "the row of the last one",
            )
            check.require(not progress["events"], {"seq": progress["last_seq"]}, wrong, expected)
            return
        if not self._alone:
            here = (newest["source_epoch"], newest["commit_lsn"])
            wrong = f"is of transaction {lsn.show(newest['commit_lsn'])}"
            check.require(here <= (progress["epoch"], at), newest, wrong, f"none after the watermark, {lsn.show(at)}")
            return
        if newest["source_epoch"] < progress["epoch"]:  # no transaction of the new epoch has arrived yet
            return
        # A transaction without events moves only the watermark.
        if newest["commit_lsn"] < at <= progress["staged_lsn"]:
            staged = self._row("verify_staged", {"after": newest["commit_lsn"], "upto": at}) or {"commit_lsn": None}
            wrong = f"is before a staged transaction, {place(newest['source_epoch'], staged['commit_lsn'], None)}"
            check.require(
                staged["commit_lsn"] is None, newest, wrong, f"it in the log: the watermark is {lsn.show(at)}"
            )
            return
        wrong = f"is the newest row, of transaction {lsn.show(newest['commit_lsn'])}"
        check.require(newest["commit_lsn"] == at, newest, wrong, f"the watermark, {lsn.show(at)}")
        wrong, expected = "no row there, although it was the newest", "a row, by pipeline.shuffle_progress.last_seq"
        after = self._row("verify_retried", {"after": newest["seq"], "head": progress["last_seq"]}) or {"newest": False}
        holds = newest["seq"] == progress["last_seq"] or after["newest"]
        check.require(holds, {"seq": progress["last_seq"]}, wrong, expected)
        wrong, expected = f"committed at {newest['committed_at']}", f"{progress['committed_at']}, like the watermark"
        check.require(newest["committed_at"] == progress["committed_at"], newest, wrong, expected)

    def _read_rows(self, head: int, range_rows: int, on_range: OnRange) -> None:
        before = self._row("verify_row", {"seq": self._from_seq - 1})
        after = self._from_seq - 1
        while after < head:
            below = self._dropped_below()
            if after < below - 1:  # the first kept row may be inside its transaction
                after, before = below - 1, None
            cut = before is None and (after > 0 or not self._from_the_first())
            values = {**NO_ROW, **(before or {}), "cut": cut, "after": after, "head": head, "limit": range_rows}
            found = self._row("verify_range", values)
            if self._dropped_below() > after + 1:  # recorded before the first row is dropped
                continue
            if found is None or not found["rows"]:
                break
            self._count(found, values)
            after = found["last_seq"]
            before = self._row("verify_row", {"seq": after})
            on_range(self._from_seq, after, head)

    def _count(self, found: Row, values: Row) -> None:
        self._rows += found["rows"]
        self._placed += found["placed"]
        self._transactions += found["transactions"]
        self.order.checked = self.places.checked = self._placed
        self.whole.checked = self._transactions
        for rule, check in self._row_checks.items():
            if found[rule]:
                named = [
                    violations.RULES[rule](row)
                    for row in self._violations(rule, values, violations.SHOWN - len(check.faults))
                ]
                check.faults.extend(named)
                check.broken += found[rule]
        if found["skips"]:
            self._skips.extend(self._violations("skips", values, violations.SHOWN - len(self._skips)))

    def _check_retried(self, head: int) -> None:
        """Check that each retried dead letter is in the log once, and no other row is marked as one."""
        known = self._row("verify_dead_letters", {"table": str(self._table), "head": head})
        if known is None or not known["retried"] or self._from_seq > 1 or not self._from_the_first():
            return
        found = self._row("verify_retried", {"after": 0, "head": head}) or {"retried": 0}
        self._retried = found["retried"]
        wrong, expected = (
            f"{drawing.count(self._retried, 'row')} of dead letters",
            f"{known['retried']:,}, by pipeline.dead_letters",
        )
        self.progress.require(self._retried == known["retried"], None, wrong, expected)

    def _check_events(self, events: int, counted_in: str) -> None:
        check = self.progress
        if self._from_seq > 1:
            check.not_checked = f"read from seq {self._from_seq} only"
        elif not self._from_the_first():
            below = self._dropped_below()
            gone = f"retention has dropped events below seq {below}"
            check.not_checked = gone if below > 1 else "the first partition no longer exists"
        else:
            check.checked = placed = self._placed + self._retried
            if placed != events:
                check.add(of_row(None, drawing.count(placed, "row"), f"{events:,}, by pipeline.{counted_in}.events"))
                check.faults.extend(violations.skips(row) for row in self._skips)

    def _from_the_first(self) -> bool:
        table = self._table.identifier.as_string(self._connection)
        whole = queries.value(self._connection, queries.statement("operate.verify", "verify_bound"), {"table": table})
        return bool(whole) and self._dropped_below() == 1

    def _dropped_below(self) -> int:
        """The seq below which retention has dropped events."""
        return policy.dropped(self._connection, self._table).below

    def _violations(self, rule: str, values: Row, shown: int) -> list[Row]:
        if shown <= 0:
            return []
        return self._all("verify_violations", {**values, "shown": shown}, rule=sql.Identifier(rule))

    def _row(self, name: str, values: Row | None = None) -> Row | None:
        return next(iter(self._all(name, values or {})), None)

    def _all(self, name: str, values: Row, **names: sql.Composable) -> list[Row]:
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(self._statement(name, **names), {"source": self._source.id, **values}).fetchall()

    def _statement(self, name: str, **names: sql.Composable) -> sql.Composed:
        return sql.SQL(queries.statement("operate.verify", name)).format(**{**self._names, **names})


def confirmed_position(config: Config, made: Mapping[str, int], found: RuleCheck) -> int | str:
    """The slot's confirmed position, or why it is unknown. Adds to `found` a publication that hides rows.

    `made`: the publications that the server made, name to oid.
    """
    try:
        with connections.connect_promptly(config.source, "source", name="pipeline verify") as source:
            slot = slots.find(source, config.slot)
            if narrowed := publication_form.find_difference(source, made):
                found.require(False, None, narrowed, "all rows and actions, as the server made it")
    except (PipelineError, psycopg.Error) as error:
        return connections.one_line(error)
    if slot is None or slot.confirmed_lsn is None:
        return f'"{config.slot}" does not exist' if slot is None else f'"{slot.name}" is lost'
    return slot.confirmed_lsn


def check_positions(found: RuleCheck, progress: Row, newest: Row | None, slot: str, confirmed: int | str) -> None:
    """Check that positions agree. `progress` and `newest` (the newest row) were read at one moment.

    `confirmed` was read earlier, so that it never exceeds them.
    """
    at, stored = lsn.show(progress["commit_lsn"]), lsn.show(progress["position"])
    if progress["epoch"] is not None:
        staged = min(progress["position"], progress["staged_lsn"])
        found.require(staged >= progress["commit_lsn"], None, f"staged up to {lsn.show(staged)}", f"at least {at}")
    if newest is not None:
        wrong = f"the sequence is at {progress['sequence']}"
        found.require(progress["sequence"] >= newest["seq"], newest, wrong, f"at least {newest['seq']}")
    if isinstance(confirmed, str):
        found.not_checked = f"slot: {confirmed}"
    else:
        wrong = f'slot "{slot}" is confirmed up to {lsn.show(confirmed)}'
        found.require(confirmed <= progress["position"], None, wrong, f"at most {stored}, which is stored")
