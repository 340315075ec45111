"""One seed: servers, writers, faults and readers at once, then the log is compared with what the writers did."""

from __future__ import annotations

import re
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from operator import itemgetter

import psycopg

from pipeline.config.settings import load
from pipeline.operate.verify import verify
from tests.fixtures import test_decoding
from tests.fixtures.diagnosis import diagnosis
from tests.fixtures.waiting import eventually
from tests.torture.faults.faults import Faults
from tests.torture.faults.servers import ServerEnded, Servers
from tests.torture.oracle import comparing, model, order, watching
from tests.torture.oracle.knowing import Known
from tests.torture.oracle.model import Event, Model
from tests.torture.oracle.readers import CountingReader, Follower
from tests.torture.plan import kinds
from tests.torture.plan.deeds_shapes import OUTSIDE, SHAPE_DEEDS
from tests.torture.plan.plan import Change, Fault, Plan, Step
from tests.torture.plan.statements import PUBLISHED, TABLES
from tests.torture.rig import Rig, Scene
from tests.torture.writers.writers import WorkerPool

STANDS_STILL, ARRIVES_WITHIN = 180.0, 900.0
"""Seconds, all faults over, in which nothing more is staged or moved, and in all, until the last event is there."""
SLOW_PACE = 0.004
"""Seconds between two steps while a fault has not hit yet: it is to hit a system at work."""
_SECOND_OPINION = "torture_second"


_ODD = re.compile(r"kinds|\.odd$")
_ODD_LINE = re.compile(r'table "?(kinds|types|private)|message: transactional: 1 prefix: odd,')


class Broken(Exception):
    """What should never be; its text says what."""


@dataclass(frozen=True)
class Outcome:
    """`failure` in words with the first difference, None when the log equals the model; `logs` of all servers."""

    seed: int
    seconds: float
    transactions: int = 0
    changes: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    failure: str | None = None
    logs: str = ""
    occurred: frozenset[str] = frozenset()
    """`table action` of every kind of change that was written, and `unchanged` where a TOASTed value was."""
    deeds: Counter[str] = field(default_factory=Counter)
    """What was done to the odd tables, and `deed: sqlstate` what could not be."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Changes of odd tables by kind of table."""

    @property
    def ddl(self) -> int:
        """How many statements, or groups of them, changed an odd table."""
        return sum(self.deeds[name] for name in (*dict.fromkeys(SHAPE_DEEDS), *OUTSIDE))


class _Counts:
    def __init__(self) -> None:
        self.model = Model()
        self.hits: Counter[str] = Counter()
        self.changes: list[Change] = []
        self.deeds: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()

    def occurred(self) -> frozenset[str]:
        kinds = {f"{change.table} {change.action}" for change in self.changes}
        return frozenset(kinds | {"unchanged" for change in self.changes if change.unchanged})


def run(rig: Rig, plan: Plan) -> Outcome:
    """Carry a plan out on a fresh scene. Never raises for what the product does, but for a broken harness it may."""
    counts, started, logs = _Counts(), time.monotonic(), ""
    failure = None
    with rig.scene(plan.settings) as scene:
        try:
            _run(scene, plan, counts)
        except Exception as error:
            expected = isinstance(error, Broken | AssertionError | ServerEnded)
            failure, logs = str(error) if expected else traceback.format_exc(), scene.logs()
    seconds, transactions = time.monotonic() - started, len(counts.model.transactions)
    sizes = transactions, len(counts.changes)
    return Outcome(
        plan.seed, seconds, *sizes, counts.hits, failure, logs, counts.occurred(), counts.deeds, counts.kinds
    )


def _run(scene: Scene, plan: Plan, counts: _Counts) -> None:
    with scene.source() as source:
        source.execute(TABLES + watching.WITNESS)
        if odd := any(step.kind == "deed" for step in plan.steps):
            source.execute(kinds.TABLES + kinds.WATCH_ALL + watching.NOTE)
        start = order.position(source)
        if scene.rig.major == 15:  # the one that has test_decoding
            test_decoding.make_slot(source, scene.slot + _SECOND_OPINION)
    servers = Servers(scene, PUBLISHED, catchup=plan.catchup)
    with (
        Faults(scene, servers, plan.seed) as faults,
        Follower(scene.log_dsn) as follower,
        CountingReader(scene.log_dsn) as counter,
        WorkerPool(scene.source_dsn, counts.model, counts.deeds) as worker_pool,
    ):
        counts.hits = faults.hits
        _work(plan, worker_pool, faults)
        _mark_end(worker_pool, plan, counts.model)
        _arrive(scene, servers)
        if odd:
            _publish(scene, servers)
    _compare(scene, counts, start)
    with scene.log() as log:
        for fault in (follower.fault(), follower.compare(log), counter.fault()):
            if fault:
                raise Broken(fault)
    _verify(scene)


def _work(plan: Plan, worker_pool: WorkerPool, faults: Faults) -> None:
    for item in plan.items:
        if isinstance(item, Fault):
            faults.begin(item)
            continue
        worker_pool.take(item)
        if faults.pending:
            time.sleep(SLOW_PACE)
    worker_pool.finish()
    faults.finish()


def _mark_end(worker_pool: WorkerPool, plan: Plan, model: Model) -> None:
    """One transaction after all others, with all faults over. A connection that was lost is found only by its use."""
    first = max(plan.transactions, default=0) + 1
    for number in range(first, first + 3):
        message = Change(".mark", "message", "", {"content": "end"})
        for step in (
            Step(number, 1, "begin", f"insert into private.journal values ({number})"),
            Step(number, 1, "change", "select pg_logical_emit_message(true, 'mark', 'end')", None, (message,)),
            Step(number, 1, "commit", "commit"),
        ):
            worker_pool.take(step)
        worker_pool.finish()
        if number in model.transactions and model.transactions[number].fate == "committed":
            return
    raise Broken("the last transaction cannot be written")


def _arrive(scene: Scene, servers: Servers) -> None:
    with scene.log() as log:

        def arrived() -> bool:
            servers.tend()
            return test_decoding.arrived(log, "end") > 0

        def further() -> bool:
            return arrived() or _progress(log) > before

        give_up = time.monotonic() + ARRIVES_WITHIN
        try:
            while not arrived():
                before = _progress(log)
                eventually(further, min(STANDS_STILL, give_up - time.monotonic()), ())
        except AssertionError as error:
            raise Broken(
                f"the last transaction does not arrive (position and seq are {before}): {error}\n{scene.newest_lines()}"
                f"\n{diagnosis(scene.source_dsn, scene.log_dsn)}"
            ) from error


def _progress(log: psycopg.Connection) -> tuple[int, int]:
    """Up to where all is staged, and the last seq."""
    row = log.execute("""
        select (select coalesce(max(position), 0) from pipeline.replication_progress where worker = 0),
            (select coalesce(max(seq), 0) from public.sequin_events)
    """).fetchone()
    assert row is not None
    return row[0], row[1]


def _publish(scene: Scene, servers: Servers) -> None:
    """Tables that came, or changed their key, are published in the end."""
    with scene.source() as source:

        def published() -> None:
            servers.tend()
            assert not (found := watching.lacking(source)), f"not published: {', '.join(found)}"

        eventually(published, ARRIVES_WITHIN)


def _compare(scene: Scene, counts: _Counts, start: order.Position) -> None:
    waldump = scene.rig.source.server.bin_dir / "pg_waldump"
    with scene.source() as source, scene.log() as log:
        records = order.commits(waldump, scene.rig.source.server.data / "pg_wal", start, order.position(source))
        seen = watching.read(source)
        counts.kinds = seen.kinds
        expected = list(counts.model.expected(model.read_journal(source), records, seen.changes))
        counts.changes = [event.change for event in expected]
        known = Known(seen.changed)
        difference = comparing.first_difference(comparing.read_log(log), expected, known)
        counts.kinds += known.counts
        if difference:
            raise Broken(difference)
        if scene.rig.major == 15:
            _compare_with_slot(source, scene.slot + _SECOND_OPINION, expected)


def _compare_with_slot(source: psycopg.Connection, slot: str, expected: list[Event]) -> None:
    """The model itself, checked by another plugin: table, action and the values that both write in the same way."""
    reported = (change for change in _read_slot(source, slot) if _is_published(change))
    plain = (event for event in expected if event.change.kinds is None and not _ODD.match(event.change.table))
    for place, (wanted, seen) in enumerate(zip_longest(plain, reported), 1):
        same = wanted and seen and (wanted.change.table, wanted.change.action) == (seen.table, seen.action)
        common = (wanted.change.values.keys() & seen.values.keys()) - {"doc"} if wanted and seen else ()
        if not same or any(wanted.change.values[name] != seen.values[name] for name in common):
            raise Broken(f"change {place}: the model has {comparing.show(wanted)}, test_decoding says {seen}")


def _read_slot(source: psycopg.Connection, slot: str) -> Iterator[test_decoding.Change]:
    """The odd tables left out: of them, it says nothing that a trigger does not.

    A message has the LSN of the next record, whose changes may be said before it.
    """
    query = """
        select lsn, data from pg_logical_slot_get_changes(%s, null, null, 'include-xids', '1', 'skip-empty-xacts', '1')
    """
    for _, lines in groupby(source.execute(query, [slot]), itemgetter(0)):
        for _, line in sorted(lines, key=lambda line: not line[1].startswith("message")):
            if not _ODD_LINE.match(line):
                yield from test_decoding.parse(line, {})


def _is_published(change: test_decoding.Change) -> bool:
    """A slot of its own sees everything; of tables without a key only inserts and truncates are published."""
    keyless = change.table.startswith("public.scratch_")
    return not change.table.startswith("private.") and not (keyless and change.action == "update")


def _verify(scene: Scene) -> None:
    """What `pipeline verify` says, without the second that a process takes to start."""
    config = load(source_dsn=scene.source_dsn, database_dsn=scene.log_dsn, slot=scene.slot)
    found = verify.run(config, from_seq=1, range_rows=1_000, on_range=lambda *_: None)
    if not found.ok:
        raise Broken(f"pipeline verify finds faults: {found}")
