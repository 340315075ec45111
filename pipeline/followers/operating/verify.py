"""The command `pipeline followers verify`: compares the content of a follower's tables with the source's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Literal

import psycopg

from pipeline.capture.source import captured_now, publication_ledger, published_relations, sources
from pipeline.capture.source.captured_now import CapturedTable
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.errors import FollowerError, NotComparableError, TableRefusedError
from pipeline.followers import connecting, registry
from pipeline.followers.operating import follower_definitions, follower_tables, status
from pipeline.followers.operating.follower_reach import FollowerCatchUp
from pipeline.followers.registry import FollowerTable, RegisteredFollower
from pipeline.followers.verifying import comparison, shape
from pipeline.followers.verifying.comparison import RowDifference, TableComparison
from pipeline.followers.verifying.shape import ComparedRelation, ComparedTable
from pipeline.postgres import connections, reading_session
from pipeline.postgres.connections import Connection
from pipeline.snapshots import start
from pipeline.wal import lsn

_ALTERED = "the table was altered while it was compared; run the command again"
SHOWN = 100
"""The most differing rows of a table that are named; all are counted."""
OnStep = Callable[[str, int], None]
"""A function that is called after each step, with the table and the number of its rows compared so far."""
State = Literal["equal", "differs", "refused"]
_PROGRAM = "pipeline followers verify"


@dataclass
class VerifiedTable:
    """The result for one table. `reason`: why it is refused. `differing`: number of rows; `differences`: the first.

    `form`: how the follower's table differs from the version that it must have. `altered`: what the source has altered
    since, which reaches the follower with the next event and is no difference. `unsettled`: the number of rows that
    were written too often to be read at both sides as of the same commit.
    """

    table: str
    state: State = "equal"
    reason: str | None = None
    rows: int = 0
    form: str | None = None
    altered: str | None = None
    differing: int = 0
    unsettled: int = 0
    seconds: float = 0.0
    differences: list[RowDifference] = field(default_factory=list)


@dataclass(frozen=True)
class FollowerVerification:
    """The result of a comparison. The follower had everything up to `verified_through`, seq `seq`, before it began.

    `ok`: tables were compared, and none differs. False also if the user named a table that cannot be compared.
    """

    ok: bool
    follower: str
    started_at: datetime
    verified_through: lsn.Shown
    seq: int
    rows: int
    differing: int
    unsettled: int
    tables: list[VerifiedTable]


def verify(
    config: Config,
    pipeline: Connection,
    name: str,
    tables: Sequence[str] = (),
    on_step: OnStep = lambda *_: None,
) -> FollowerVerification:
    """Compare these tables of a follower, or all of them, while the source writes and the follower follows.

    Raises UnknownFollowerError, TableRefusedError for a name that is none of its tables, FollowerError if the follower
    pauses or stops, and DatabaseUnavailableError if a database does not answer or the follower stalls for a minute.
    """
    started = datetime.now(UTC)
    status.show(pipeline, name)
    found = registry.find(pipeline, name)[0]
    with _both_sides(config, found) as (source, follower):
        stored = sources.find(pipeline, config.source_id)
        if stored is None or stored.id != found.source_id:
            raise FollowerError(f"{connecting.label(name)} is of another source than the one in the settings")
        with reading_session.transaction(source, comparison.SOURCE):
            captured = captured_now.read(config, source, pipeline, stored)
            chosen = _choose_tables(source, found, tables, captured)
        reach = FollowerCatchUp(source, pipeline, follower, stored, name)
        reached = reach()
        run = _TableVerifier(source, pipeline, follower, stored, captured, reach, on_step, found)
        compared = [run.compare(table) for table in chosen]
    differing = sum(table.differing for table in compared)
    same = not any(table.form for table in compared)
    refused = sum(table.state == "refused" for table in compared)
    return FollowerVerification(
        ok=not differing and same and refused < len(compared) and not (tables and refused),
        follower=name,
        started_at=started,
        verified_through=reached.lsn,
        seq=reached.seq,
        rows=sum(table.rows for table in compared),
        differing=differing,
        unsettled=sum(table.unsettled for table in compared),
        tables=compared,
    )


@contextmanager
def _both_sides(config: Config, registration: RegisteredFollower) -> Iterator[tuple[Connection, Connection]]:
    """Connect to both sides with the same settings, which raise an error if a row security policy hides rows."""
    there = {"settings": comparison.FOLLOWER, "prepare_threshold": None}
    with (
        reading_session.connect(config, name=_PROGRAM, settings=comparison.SOURCE) as source,
        connecting.connect(registration.name, registration.dsn, program=_PROGRAM, **there) as follower,
    ):
        try:
            yield source, follower
        except psycopg.OperationalError as error:
            if follower.broken:
                raise connecting.unavailable(registration.name, registration.dsn, error) from error
            raise


def _choose_tables(
    source: Connection, registration: RegisteredFollower, names: Sequence[str], captured: dict[int, CapturedTable]
) -> list[FollowerTable]:
    by_oid = {table.table_oid: table for table in registration.table_states}
    if not names:
        return list(by_oid.values())
    chosen = []
    for name in names:
        table = start.captured_table(source, name, captured)
        if table.oid not in by_oid:
            raise TableRefusedError(
                f"{connecting.label(registration.name)} does not have {table.schema}.{table.name}; "
                f"`pipeline followers show {registration.name}` lists its tables"
            )
        chosen.append(by_oid[table.oid])
    return list(dict.fromkeys(chosen))


class _TableVerifier:
    def __init__(
        self,
        source: Connection,
        pipeline: Connection,
        follower: Connection,
        stored: ReplicationSource,
        captured: dict[int, CapturedTable],
        reach: FollowerCatchUp,
        on_step: OnStep,
        registration: RegisteredFollower,
    ) -> None:
        self._source, self._pipeline, self._follower = source, pipeline, follower
        self._stored, self._captured, self._found = stored, captured, registration
        self._reach, self._on_step = reach, on_step

    def compare(self, table: FollowerTable) -> VerifiedTable:
        """Compare one table, or return why it is refused."""
        began = monotonic()
        found = VerifiedTable(f"{table.table_schema}.{table.table_name}")
        try:
            self._compare(table, found)
        except NotComparableError as error:
            found.state, found.reason = "refused", str(error)
        except psycopg.Error as error:
            if self._source.closed or self._follower.closed:
                raise
            found.state, found.reason = "refused", f"{connections.one_line(error)}; run it again"
        found.seconds = round(monotonic() - began, 3)
        return found

    def _compare(self, table: FollowerTable, found: VerifiedTable) -> None:
        table = self._now(table)
        described = self._with_columns(table, self._described(table), found)
        with (
            reading_session.transaction(self._source, comparison.SOURCE),
            reading_session.transaction(self._follower, comparison.FOLLOWER),
        ):
            columns = shape.read(self._source, self._follower, described)
        if self._described(table).relations != described.relations:  # the conditions must be of the shape that was read
            raise NotComparableError(_ALTERED)
        named = set[tuple[str, ...]]()
        for step in TableComparison(self._source, self._follower, described, columns, self._reach).run():
            found.rows += step.rows
            found.unsettled += step.unsettled
            fresh = [each for each in step.differences if each.key not in named]
            named.update(each.key for each in fresh)
            found.differences += fresh[: SHOWN - len(found.differences)]
            self._on_step(found.table, found.rows)
        found.differing = len(named)
        if named and self._with_columns(now := self._now(table), self._described(now), found) != described:
            raise NotComparableError(_ALTERED)
        if not described.key and found.unsettled:
            raise NotComparableError(
                "it has no key that tells its rows apart, and was written throughout; run it again while no session "
                "writes it"
            )
        found.state = "differs" if named or found.form else "equal"

    def _with_columns(self, table: FollowerTable, described: ComparedTable, found: VerifiedTable) -> ComparedTable:
        """Note how the follower's table differs from its version, and leave out columns that it lacks."""
        there = follower_definitions.compare(self._source, self._pipeline, self._follower, self._found, table)
        found.form = there.differing
        found.altered = there.altered_since((described.schema, described.name), described.columns)
        if there.columns is None:
            return described
        columns = tuple(
            each for each in described.columns if each in there.columns_at_follower or each in described.key
        )
        return replace(described, columns=columns)

    def _now(self, table: FollowerTable) -> FollowerTable:
        """Return the table's current state at the follower, because a copy of it may have begun."""
        found = registry.find(self._pipeline, self._found.name)
        same = (each for follower in found for each in follower.table_states if each.table_oid == table.table_oid)
        if (now := next(same, None)) is None:
            raise NotComparableError("the follower no longer has it")
        return now

    def _described(self, table: FollowerTable) -> ComparedTable:
        """Return the table as the source publishes it now. Raises NotComparableError."""
        if table.state in ("copying", "stopped"):
            raise NotComparableError(f"it is {table.state}" + (f": {table.reason}" if table.reason else ""))
        captured = self._captured.get(table.table_oid)
        if captured is None:
            raise NotComparableError("the source no longer publishes it")
        publications = list(publication_ledger.known_publications(self._stored))
        with reading_session.transaction(self._source, comparison.SOURCE):
            [wanted] = follower_tables.describe_tables(self._source, self._stored, [captured])
            relations = published_relations.read(self._source, table.table_oid, publications)
        return ComparedTable(
            wanted.schema,
            wanted.name,
            wanted.columns,
            wanted.key,
            tuple(ComparedRelation(each.name, each.condition) for each in relations),
            table.table_schema,
            table.table_name,
        )
