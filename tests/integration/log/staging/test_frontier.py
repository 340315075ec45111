"""Every statement that asks how far the log is agrees with the model, over random states of the tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

from pipeline.log.staging.frontier.frontier import AdoptedState, Frontier, RangeState, SegmentState, WorkerPart
from pipeline.log.staging.progress import with_progress
from pipeline.log.table import DEFAULT
from pipeline.postgres.queries import literals, statement
from tests.fixtures.postgres import Cluster
from tests.fixtures.staged import Staged, Table, staging_of

END = 12
"""LSNs are small, so that they often meet."""
EXAMPLES, MANY_EXAMPLES = 120, 4_000
GENERATION = 7
FIRST_SEQ = 100

lsns = st.integers(1, END)
epochs = st.integers(0, 1)


@st.composite
def spans(draw: st.DrawFn) -> tuple[int, int]:
    first, last = sorted((draw(lsns), draw(lsns)))
    return first, last


@st.composite
def segments(draw: st.DrawFn) -> SegmentState:
    state, worker = draw(st.sampled_from(["free", "filling", "full", "drained"])), draw(st.integers(-1, 2))
    first, last = draw(spans())
    return (
        SegmentState(worker, state, first, last)
        if state != "free" and worker >= 0
        else SegmentState(worker, state, None, None)
    )


@st.composite
def workers(draw: st.DrawFn) -> list[WorkerPart]:
    """Worker 0 and up to two parts, each somewhere in its stretch of the WAL."""
    begins = [0, *sorted(draw(st.sets(lsns, max_size=2)))]
    found = []
    for worker, begin in enumerate(begins):
        position = draw(st.integers(max(begin, 1), END))
        epoch = draw(epochs) if worker == 0 else 0
        found.append(WorkerPart(worker, begin, position, draw(st.integers(0, position)), epoch))
    return found


frontiers = st.builds(
    Frontier,
    epoch=epochs,
    watermark=st.integers(0, END),
    workers=workers(),
    segments=st.lists(segments(), max_size=4),
    ranges=st.lists(
        st.builds(RangeState, epoch=epochs, state=st.sampled_from(["staged", "placed", "moved"]), commit_lsn=lsns),
        max_size=2,
    ),
    adopted=st.lists(
        st.tuples(st.sampled_from(["waiting", "moved"]), spans()).map(lambda each: AdoptedState(each[0], *each[1])),
        max_size=1,
    ),
    has_retried_letter=st.booleans(),
)


class Log:
    """The tables of one source, in a transaction for each state."""

    def __init__(self, staged: Staged) -> None:
        self.source = staged.source
        self.connection = psycopg.connect(staged.dsn, row_factory=dict_row)
        name = {"sequence": DEFAULT.sequence.as_string(), "table": DEFAULT.identifier.as_string(), "name": str(DEFAULT)}
        self.values: dict[str, Any] = {"source": self.source, **name}

    def make(self, state: Frontier) -> None:
        """Put the tables into this state."""
        for table in ("snapshot_ranges", "adopted_tables", "catchup_parts", "replication_progress", "shuffle_progress"):
            self._run(f"delete from pipeline.{table}")
        self._run("delete from pipeline.segments; delete from pipeline.dead_letters; delete from pipeline.adoptions")
        self._run(
            "insert into pipeline.shuffle_progress (source_id, epoch, commit_lsn) values (%s, %s, %s)",
            self.source,
            state.epoch,
            state.watermark,
        )
        for part in state.workers:
            self._run(
                "insert into pipeline.replication_progress (source_id, worker, epoch, generation, position, commit_lsn)"
                " values (%s, %s, %s, %s, %s, %s)",
                self.source,
                part.worker,
                part.epoch,
                GENERATION,
                part.position,
                part.commit_lsn,
            )
            if part.worker:
                self._run(
                    "insert into pipeline.catchup_parts (source_id, worker, epoch, from_lsn) values (%s, %s, 0, %s)",
                    self.source,
                    part.worker,
                    part.from_lsn,
                )
        for number, each in enumerate(state.segments, 1):
            self._run(
                "insert into pipeline.segments (id, source_id, worker, state, first_lsn, last_lsn, first_ordinal)"
                " overriding system value values (%s, %s, %s, %s, %s, %s, %s)",
                1_000 + number,
                self.source,
                each.worker,
                each.state,
                each.first_lsn,
                each.last_lsn,
                number,
            )
        for each_range in state.ranges:
            self._run(
                "insert into pipeline.snapshot_ranges"
                " (source_id, epoch, backfill_id, relation_oid, table_oid, state, commit_lsn)"
                " values (%s, %s, (select min(id) from pipeline.backfills), 1, 1, %s, %s)",
                self.source,
                each_range.epoch,
                each_range.state,
                each_range.commit_lsn,
            )
        for adopted in state.adopted:
            self._run(
                "insert into pipeline.adopted_tables"
                " (source_id, run, generation, events_table, table_name, state, attaches, ends,"
                " first_seq, last_seq, first_lsn, last_lsn, relations)"
                " values (%s, 1, 1, '', '', %s, true, true, 1, 1, %s, %s, '{}')",
                self.source,
                adopted.state,
                adopted.first_lsn,
                adopted.last_lsn,
            )
        if state.has_retried_letter:
            self._run(
                "insert into pipeline.dead_letters"
                " (source_id, epoch, commit_lsn, commit_idx, xid, relation_id, table_oid,"
                " table_schema, table_name, action, record_pk, record, committed_at, events_table, seq, cause,"
                " sqlstate, state)"
                " values (%s, 0, 1, 0, 1, 1, 1, '', '', 'insert', '', '', now(), '', 1, '', '', 'retrying')",
                self.source,
            )

    def ask(self, name: str, **given: object) -> list[dict[str, Any]]:
        """The rows of a statement; what it writes is undone."""
        values = {**self.values, **given}
        with self.connection.transaction(force_rollback=True):
            return self.connection.execute(statement("log.staging.frontier", name), values).fetchall()

    def writes_directly(self, after: int, epoch: int) -> bool:
        """Whether `begin_at_head` lets a batch of one row be written behind the watermark that was found."""
        given = {
            "last_lsn": END + 1,
            "last_seq": FIRST_SEQ + 1,
            "rows": 1,
            "newest_at": 0,
            "committed_at": 0,
            "epoch": epoch,
        }
        given |= {
            "after": after,
            "position": END + 2,
            "commit_lsn": END + 1,
            "transactions": 1,
            "generation": GENERATION,
        }
        text = with_progress("log.staging.frontier", "begin_at_head")
        query = text % {
            **literals(**self.values, **given, open_lsn=None, open_changes=0),
            "then": "select 1 as one from stored",
        }
        with self.connection.transaction(force_rollback=True):
            return bool(self.connection.execute(query.encode()).fetchall())

    def _run(self, query: str, *values: object) -> None:
        self.connection.execute(query.encode(), values or None)


@pytest.fixture(scope="module")
def log(cluster: Cluster) -> Iterator[Log]:
    with staging_of(cluster, Table("orders")) as staged:
        staged.shuffle()
        found = Log(staged)
        with found.connection:
            found.connection.execute("select setval('public.sequin_events_seq_seq', %s)", [FIRST_SEQ])
            found.connection.execute(
                "insert into pipeline.backfills (source_id, epoch, table_oid, table_schema, table_name, kind)"
                " values (%s, 0, 1, 'public', 'orders', 'initial')",
                [found.source],
            )
            yield found
            found.connection.rollback()


def agrees(log: Log, state: Frontier) -> None:
    with log.connection.transaction(force_rollback=True):
        log.make(state)
        looked = log.ask("staging_state")
        assert {(row["epoch"], row["watermark"], row["complete"]) for row in looked} == {
            (state.epoch, state.watermark, state.complete)
        }
        assert looked[0]["next_range"] == state.next_range
        assert looked[0]["next_adopted"] == state.next_adopted
        found = [(row["first_lsn"], row["last_lsn"]) for row in looked if row["id"] is not None]
        waiting = [(each.first_lsn, each.last_lsn) for each in state.segments_to_move if each.first_lsn is not None]
        assert sorted(found) == sorted(waiting)
        same_epoch = state.workers[0].epoch == state.epoch
        assert [row["has_staged"] for row in log.ask("log_end")] == ([state.has_staged] if same_epoch else [])
        assert log.writes_directly(state.watermark, state.epoch) == state.lets_direct_write(state.watermark)
        assert not log.writes_directly(state.watermark + 1, state.epoch)
        (drained,) = log.ask("is_drained")
        assert next(iter(drained.values())) == state.is_drained
        begun = log.ask("begin_run", worker=0, generation=GENERATION, highest=2**62)
        assert bool(begun) == state.lets_run_begin
        for lsn in range(END + 2):
            (reaches,) = log.ask("log_reaches", lsn=lsn)
            assert reaches["reaches"] == state.reaches(lsn)
        assert log.ask("moved_position") == [{"moved": state.moved_position}]


@given(state=frontiers)
@settings(max_examples=EXAMPLES, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_statement_agrees_with_the_model(log: Log, state: Frontier):
    agrees(log, state)


@pytest.mark.long
@given(state=frontiers)
@settings(max_examples=MANY_EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_statement_agrees_with_the_model_in_many_states(log: Log, state: Frontier):
    agrees(log, state)
