"""One seed: servers, writers, faults and readers at once, then the log is compared with what the writers did."""

from __future__ import annotations

import random
import re
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from operator import itemgetter
from pathlib import Path

import psycopg

from pipeline.config.settings import Config, load
from pipeline.operate.verify import verify
from tests.fixtures import test_decoding
from tests.fixtures.diagnosis import diagnosis
from tests.fixtures.waiting import eventually
from tests.torture.faults.faults import Faults
from tests.torture.faults.servers import ServerEnded, Servers
from tests.torture.oracle import comparing, model, order, reading, rereading, watching
from tests.torture.oracle.contents import Verifier
from tests.torture.oracle.knowing import Known
from tests.torture.oracle.model import Event, Model
from tests.torture.oracle.readers import CountingReader, Follower
from tests.torture.oracle.reading import Rows
from tests.torture.plan import kinds, old_tables
from tests.torture.plan.deeds_shapes import OUTSIDE, SHAPE_DEEDS
from tests.torture.plan.plan import ENDS, Change, Fault, Plan, Step
from tests.torture.plan.statements import PUBLISHED, TABLES, back
from tests.torture.rig import Rig, Scene
from tests.torture.writers.writers import WorkerPool

STANDS_STILL, ARRIVES_WITHIN = 180.0, 900.0
"""Seconds, all faults over, in which nothing more is staged or moved, and in all, until the last event is there."""
READ = "public.*"
"""What is read: of tables that change their form, what a row was cannot be told by a key alone."""
SLOW_PACE = 0.004
"""Seconds between two steps while a fault has not hit yet: it is to hit a system at work."""
APART = 0.012
"""Seconds between two steps where ways are forced: what is committed together is one batch, and only one of plain rows
is written at once."""
STEADILY = (0.01, 0.05)
"""Seconds after the end of a transaction where they come steadily, at least and at most."""
_SECOND_OPINION = "torture_second"


_ODD = re.compile(r"kinds|\.odd$")
_ODD_LINE = re.compile(
    r'table "?(kinds|types|private)|message: transactional: 1 prefix: (odd|pipeline:(snapshot|position)),'
)


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
    reads: Counter[str] = field(default_factory=Counter)
    """Rows that were read, by table."""
    compared: Counter[str] = field(default_factory=Counter)
    """Rows that `verify --content` compared, by table."""
    ways: Counter[str] = field(default_factory=Counter)
    """Changes that were written `at_once`, those that became partitions, `adopt`, and those that were staged, by why.

    As far as killed workers had told.
    """
    partitions: int = 0
    """How many those became that were adopted."""

    @property
    def share_at_once(self) -> float:
        """Of its changes, those that were certainly written at once."""
        return self.ways["at_once"] / max(1, self.changes)

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
        self.before: Mapping[str, Rows] | None = None
        """By table and key, what was there before the server; None: nothing that it reads."""
        self.keyed_later: set[str] = set()
        self.reads: Counter[str] = Counter()
        self.compared: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.partitions = 0

    def occurred(self) -> frozenset[str]:
        kinds = {f"{change.table} {change.action}" for change in self.changes}
        return frozenset(kinds | {"unchanged" for change in self.changes if change.unchanged})


def run(rig: Rig, plan: Plan, keep: Path | None = None) -> Outcome:
    """Carry a plan out on a fresh scene. Never raises for what the product does, but for a broken harness it may.

    `keep`: a new folder, into which both databases are copied when it fails.
    """
    counts, started, logs = _Counts(), time.monotonic(), ""
    failure = None
    with rig.scene(plan.settings) as scene:
        try:
            _run(scene, plan, counts)
        except Exception as error:
            expected = isinstance(error, Broken | AssertionError | ServerEnded)
            failure, logs = str(error) if expected else traceback.format_exc(), scene.logs()
            if keep is not None:
                scene.keep(keep)
    seconds, transactions = time.monotonic() - started, len(counts.model.transactions)
    return Outcome(
        plan.seed,
        seconds,
        transactions,
        len(counts.changes),
        counts.hits,
        failure,
        logs,
        counts.occurred(),
        counts.deeds,
        counts.kinds,
        counts.reads,
        counts.compared,
        counts.ways,
        counts.partitions,
    )


def _run(scene: Scene, plan: Plan, counts: _Counts) -> None:
    with scene.source() as source:
        source.execute(TABLES + watching.WITNESS)
        if plan.old:
            source.execute(old_tables.before(plan.seed))
            counts.before = _rows_before(source)
            counts.keyed_later = old_tables.keyed_later(plan.steps)
        if odd := any(step.kind == "deed" for step in plan.steps):
            source.execute(kinds.TABLES + kinds.WATCH_ALL + watching.NOTE)
        start = order.position(source)
        if scene.rig.major == 15:  # the one that has test_decoding
            test_decoding.make_slot(source, scene.slot + _SECOND_OPINION)
    read, turn = READ if plan.old else "", plan.seed if plan.adopts else 0
    servers = Servers(scene, PUBLISHED, catchup=plan.catchup, read=read, ways=plan.ways, turn=turn)
    config = load(source_dsn=scene.source_dsn, database_dsn=scene.log_dsn, slot=scene.slot)
    with (
        Faults(scene, servers, plan.seed) as faults,
        Verifier(config) as verifier,
        Follower(scene.log_dsn) as follower,
        CountingReader(scene.log_dsn) as counter,
        WorkerPool(scene.source_dsn, counts.model, counts.deeds) as worker_pool,
    ):
        counts.hits = faults.hits
        _work(plan, worker_pool, faults)
        _mark_end(worker_pool, plan, counts.model)
        _arrive(scene, servers)
        _settle(scene, servers, odd=odd, old=plan.old)
        counts.compared = verifier.at_rest(servers.tend)
    _compare(scene, counts, start)
    with scene.log() as log:
        counts.ways = Counter(dict(log.execute(_WAYS).fetchall()))
        ((counts.partitions,),) = log.execute(_ADOPTED).fetchall()
        for fault in (follower.fault(), follower.compare(log), counter.fault(), verifier.fault):
            if fault:
                raise Broken(fault)
    _verify(config)
    if plan.old and (fault := rereading.fault(scene, servers, plan.seed, Verifier(config))):
        raise Broken(f"after a gap: {fault}")


def _work(plan: Plan, worker_pool: WorkerPool, faults: Faults) -> None:
    chance = random.Random(plan.seed)
    for item in plan.items:
        if isinstance(item, Fault):
            faults.begin(item)
            continue
        worker_pool.take(item)
        if item.transaction in plan.rushed:
            continue
        if plan.is_steady:
            if item.kind in ENDS:
                time.sleep(chance.uniform(*STEADILY))
        elif plan.ways != "default":
            time.sleep(APART)
        elif faults.pending:
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


def _settle(scene: Scene, servers: Servers, *, odd: bool, old: bool) -> None:
    """Until nothing is left to be published or read."""
    if odd:
        _publish(scene, servers)
    if old:
        _read(scene, servers)


def _publish(scene: Scene, servers: Servers) -> None:
    """Tables that came, or changed their key, are published in the end."""
    with scene.source() as source:

        def published() -> None:
            servers.tend()
            assert not (found := watching.lacking(source)), f"not published: {', '.join(found)}"

        eventually(published, ARRIVES_WITHIN)


def _rows_before(source: psycopg.Connection) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for table, columns in old_tables.COLUMNS.items():
        rows = source.execute(f"select {back(columns).removeprefix('returning ')} from {table}").fetchall()
        values = [dict(zip(columns, row, strict=True)) for row in rows]
        found[table] = {reading.key(table, row): row for row in values}
    return found


def _read(scene: Scene, servers: Servers) -> None:
    """Until all tables are read, also those that came or got their key."""

    def open_tables() -> list[str]:
        servers.tend()
        with scene.source() as source:
            tables = source.execute(_TABLES).fetchall()
        with scene.log() as log:
            found = {name: state for name, *state in log.execute(_STATES)}
        return [
            f"{name}: {found.get(name)}, {keyed=}, {published=}"
            for name, keyed, published in tables
            if found.get(name, ())[:2] != ["complete", keyed] or published < keyed
        ]

    try:
        eventually(lambda: not open_tables(), ARRIVES_WITHIN / 3, (psycopg.OperationalError,))
    except AssertionError as error:
        raise Broken(f"not all tables are read: {open_tables()}\n{scene.newest_lines()}") from error


_WAYS = "select coalesce(nullif(reason, ''), way), sum(changes)::int from pipeline.ways group by 1"
_ADOPTED = r"""
    select count(*)::int from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'public.sequin_events'::regclass and c.relname ~ '_\d{12}(_\d+)+$'"""
_TABLES = """
    select 'public.' || c.relname, exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary),
        exists (select from pg_publication_rel r join pg_publication p on p.oid = r.prpubid
            where r.prrelid = c.oid and p.pubupdate)
    from pg_class c where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace"""
_STATES = """
    select s."table", s.state, k.keyed, s.reason
    from pipeline.snapshots s join pipeline.snapshot_tables k on k.table_oid = s.table_oid"""


def _joined(source: psycopg.Connection) -> dict[str, int]:
    """By table, the transaction that published its updates."""
    rows = source.execute("""
        select 'public.' || c.relname, r.xmin::text::bigint from pg_publication_rel r
        join pg_publication p on p.oid = r.prpubid and p.pubupdate and not p.puballtables
        join pg_class c on c.oid = r.prrelid and c.relnamespace = 'public'::regnamespace""")
    return dict(rows.fetchall())


def _complete(log: psycopg.Connection) -> dict[str, int]:
    rows = log.execute('select "table", complete_seq from pipeline.snapshots where complete_seq is not null')
    return dict(rows.fetchall())


def _rewritten(log: psycopg.Connection) -> set[str]:
    query = "select distinct table_schema || '.' || table_name from pipeline.rewrites"
    return {name for (name,) in log.execute(query)}


def _compare(scene: Scene, counts: _Counts, start: order.Position) -> None:
    waldump = scene.rig.source.server.bin_dir / "pg_waldump"
    with scene.source() as source, scene.log() as log:
        records = order.commits(waldump, scene.rig.source.server.data / "pg_wal", start, order.position(source))
        seen = watching.read(source)
        counts.kinds = seen.kinds
        expected = list(counts.model.expected(model.read_journal(source), records, seen.changes))
        if counts.before is None:
            counts.changes = [event.change for event in expected]
            difference = comparing.first_difference(comparing.read_log(log), expected, known := Known(seen.changed))
        else:
            events = list(comparing.read_log(log))
            since = reading.places(_joined(source), records)
            wanted = reading.published(expected, events, counts.model, since)
            counts.changes = [event.change for event in wanted]
            known = Known(seen.changed, old=True, keyed_later=counts.keyed_later)
            difference = comparing.first_difference(events, wanted, known)
            folding = reading.Folding(counts.before, _complete(log), since, _rewritten(log))
            difference = difference or folding.fault(events, expected)
            counts.reads = folding.reads
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
    """Its own slot sees everything; of tables without a key only inserts and truncates are published."""
    keyless = change.table.startswith("public.scratch_")
    return not change.table.startswith("private.") and not (keyless and change.action == "update")


def _verify(config: Config) -> None:
    """What `pipeline verify` says, without the second that a process takes to start."""
    found = verify.run(config, from_seq=1, range_rows=1_000, on_range=lambda *_: None)
    if not found.ok:
        raise Broken(f"pipeline verify finds faults: {found}")
