"""A lake of a year: a hundred thousand runs of two hundred tables that are renamed, altered, rekeyed and created again.

The ledger of the days between is simulated as compaction and expiry leave it: a file a table and day, the newest state
and a checkpoint of each of six days. At the end of some days what a run does beside reading and writing rows is done
for real, and measured: expiry, an export of all tables, the plans of their folds; `status`; what a compaction looks at.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from pathlib import Path
from time import process_time
from typing import Any

import psycopg

from lake.changes import exporter, manifest
from lake.changes.files import ChangeFiles
from lake.compaction.ledger import CompactionLedger
from lake.compaction.plan import plan
from lake.folding import current
from lake.storage.folder import DiskFolder
from pipeline.config.settings import load
from pipeline.exports import status as export_status
from pipeline.postgres import connections, migrations
from tests.benchmarks import plot
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.lake_age import NAME, blocks_read, file_sizes
from tests.benchmarks.table import Table
from tests.fixtures.lake_ledger import EVENTS, SOURCE, Ledger, all_files, lake_ledger
from tests.fixtures.postgres import Cluster

DATABASE = "bench_lake_year"
PLOT = "lake-year.svg"
FIRST = date(2025, 11, 25)
TABLES, RUNS_A_DAY, DAYS = 200, 288, 348
PERIOD = manifest.FULL
"""Days after which the newest parts of the manifest are as full again, so costs can be compared."""
LIMIT = 1.2
"""How much more the last day may cost than the first that is measured."""
SEQS = 100 * RUNS_A_DAY
"""Of a day."""
_EACH = """
    create temporary table each as
    select n, p, 'public.t' || n || case when n %% 20 = 0 then '_' || p else '' end as dataset,
        1000 + n + case when n %% 20 = 2 then 1000 * p else 0 end as oid,
        case when n %% 20 = 1 and p %% 2 = 1 then 'code' else 'id' end as key,
        array['id', 'code'] || array(select 'more_' || m from generate_series(1, p) m where n %% 20 = 3) as columns,
        greatest(0, p * 30 - n) as since
    from generate_series(1, %(tables)s) n cross join lateral (
        select distinct (d + n) / 30 as p from generate_series(0, %(days)s) d
    ) periods;
    insert into pipeline.relations (source_id, epoch, relation_oid, relation_schema, relation_name, table_oid,
        table_schema, table_name, replica_identity, columns, key_columns, from_lsn)
    select %(source)s, 0, oid, 'public', name, oid, 'public', name, 'd', (
            select json_agg(json_build_object('name', c, 'type_oid', 23, 'type_modifier', -1, 'type_name', 'integer',
                'base_type_oid', 23, 'key', c = key, 'attnum', a) order by a)
            from unnest(columns) with ordinality u (c, a)
        ), array[key], min(since) * %(seqs)s + 1
    from (select *, substr(dataset, 8) as name from each) named group by oid, name, key, columns
    order by min(since);
    insert into pipeline.export_schemas (lake_id, dataset, version, columns, key)
    select distinct on (dataset, columns, key) l.id, dataset, 1, (
            select json_object_agg(c, 'int') from unnest(columns) c
        ), json_build_array(key)
    from each, pipeline.lakes l order by dataset, columns, key;
    alter table each add column schema_id bigint;
    update each e set schema_id = s.id from pipeline.export_schemas s
    where s.dataset = e.dataset and s.key::text = json_build_array(e.key)::text
        and s.columns::text = (select json_object_agg(c, 'int') from unnest(e.columns) c)::text
"""
"""Each table in each period of 30 days: of twenty one is renamed, one rekeyed, one recreated, one has more columns."""
_DAYS = """
    insert into pipeline.exports (lake_id, after_seq, upto_seq, state, rows, bytes, holder, committed_at)
    select l.id, g * 100, (g + 1) * 100, 'committed', %(tables)s, %(tables)s * 10, 'simulated', now()
    from pipeline.lakes l, generate_series(%(from)s::bigint * %(runs)s, %(to)s::bigint * %(runs)s - 1) g
    on conflict do nothing;
    insert into pipeline.export_files (export_id, lake_id, dataset, schema_id, source_id, source_epoch, table_oid, path,
        rows, bytes, sha256, first_seq, last_seq, first_lsn, first_idx, last_lsn, last_idx, day, merged)
    select x.id, x.lake_id, e.dataset, e.schema_id, %(source)s, 0, e.oid,
        format('files/changes/%%s/date=%%s/%%s.parquet', e.dataset, d, d), %(runs)s, 10000, repeat('0', 64),
        d * %(seqs)s + 1, (d + 1) * %(seqs)s, d * %(seqs)s + 1, 0, (d + 1) * %(seqs)s, 0, %(first)s::date + d, 2
    from generate_series(%(from)s::int, %(to)s::int - 1) d
    join each e on e.p = (d + e.n) / 30
    join pipeline.exports x on x.upto_seq = (d + 1) * %(seqs)s::bigint and x.holder = 'simulated';
    insert into pipeline.export_compactions (lake_id, state, holder, files_before, files_after, finished_at)
    select l.id, 'done', 'simulated', 3000, 200, now()
    from pipeline.lakes l, generate_series(%(from)s * 24, %(to)s * 24 - 1);
    update pipeline.export_files set part = (last_seq / %(seqs)s / %(full)s + 1) * %(full)s * %(seqs)s
    where part is null and (last_seq / %(seqs)s / %(full)s + 1) * %(full)s <= %(to)s;
    insert into pipeline.export_replaced (lake_id, path, replaced_at)
    select lake_id, format('manifest/%%s/%%s.json', dataset, part), now() - interval '2 days'
    from pipeline.export_datasets where part <> %(to)s::bigint * %(seqs)s and part <> all(sealed);
    insert into pipeline.export_datasets (lake_id, dataset, part, sealed)
    select lake_id, dataset, %(to)s::bigint * %(seqs)s,
        coalesce(array_agg(distinct part) filter (where part is not null), '{}')
    from pipeline.export_files group by lake_id, dataset
    on conflict (lake_id, dataset) do update set part = excluded.part, sealed = excluded.sealed
"""
_STATES = """
    update pipeline.export_tables set dataset = null where %(age)s = 0;
    insert into pipeline.export_tables (lake_id, source_id, source_epoch, table_oid, dataset, shows)
    select l.id, %(source)s, 0, e.oid, e.dataset, %(seq)s
    from pipeline.lakes l, each e where e.p = (%(to)s - 1 + e.n) / 30
    on conflict (lake_id, source_id, source_epoch, table_oid) do update
        set dataset = excluded.dataset, shows = excluded.shows;
    update pipeline.export_states set superseded_at = now() - %(age)s * interval '1 day' where superseded_at is null;
    insert into pipeline.export_states (lake_id, dataset, seq, state, schema_version, columns, buckets, rows, bytes,
        files, source_epoch, source_table_oid, table_id, form_id, committed_at)
    select t.lake_id, t.dataset, %(seq)s, 'committed', 0, '{"id": "int"}', 1, 1, 1,
        '[{"name": "bucket-00.parquet", "bucket": 0, "rows": 1, "bytes": 1, "sha256": ""}]', 0, t.table_oid, t.id, (
            select r.id from pipeline.relations r where r.table_oid = t.table_oid order by r.from_lsn desc limit 1
        ), now() - %(age)s * interval '1 day'
    from pipeline.export_tables t where t.dataset is not null
    on conflict do nothing;
    update pipeline.lakes set folded_upto = %(seq)s
"""
_NOW = """
    select e.dataset, e.oid, e.key, s.columns::text from each e join pipeline.export_schemas s on s.id = e.schema_id
    where e.p = (%(to)s - 1 + e.n) / 30 order by e.n
"""


@dataclass(frozen=True)
class Look:
    """At the end of a day: what a run, `status` and a compaction cost, and what exists."""

    run_blocks: float
    run_seconds: float
    run_bytes: float
    memory_mb: float
    status_blocks: float
    status_seconds: float
    compaction_seconds: float
    lake_files: float
    """Of the manifest, and states."""


def report(cluster: Cluster, figures: Table, scale: float, docs: Path | None) -> None:
    """Age a lake by a year, look at it four times, and add the figures. `docs`: where the plot goes."""
    days = sorted({max(8, round(day * scale)) for day in range(DAYS - 3 * PERIOD, DAYS + 1, PERIOD)})
    cluster.drop(DATABASE)
    cluster.create(DATABASE)
    try:
        migrations.upgrade(cluster.dsn(DATABASE))
        with (
            tempfile.TemporaryDirectory(prefix="wal-lake-year-") as folder,
            lake_ledger(cluster.dsn(DATABASE), Path(folder) / "lake") as book,
            cluster.connect(DATABASE) as database,
        ):
            looks = dict(_aged(cluster, database, book, days))
    finally:
        cluster.drop(DATABASE)
    _add(figures, looks, docs)


def _add(figures: Table, looks: dict[int, Look], docs: Path | None) -> None:
    first, last = (asdict(looks[day]) for day in (min(looks), max(looks)))
    for what in first:
        name = what.replace("_", ": ", 1)
        pattern = "{:,.2f}" if what.endswith("seconds") else "{:,.0f}"
        figures.add(NAME, f"year, {name}, day {min(looks)}", [first[what]], pattern)
        if what == "memory_mb":  # too little for its ratio to say anything
            figures.add(NAME, f"year, {name}, day {max(looks)}", [last[what]], pattern)
        else:
            figures.add(
                NAME, f"year, {name}, day {max(looks)} ÷ that", [last[what] / first[what]], "{:.2f}", most=LIMIT
            )
    if docs is not None:
        drawn = {
            "run: blocks": "run_blocks",
            "status: blocks": "status_blocks",
            "files": "lake_files",
        }
        series = {
            name: [(float(day), asdict(look)[what] / first[what]) for day, look in looks.items()]
            for name, what in drawn.items()
        }
        title = f"A lake of {TABLES} tables and {max(looks) * RUNS_A_DAY:,} runs: what it costs"
        (docs / PLOT).write_text(plot.lines(title, series, "days", f"times day {min(looks)}"))


def _aged(
    cluster: Cluster, database: psycopg.Connection[Any], book: Ledger, days: list[int]
) -> Iterator[tuple[int, Look]]:
    values: dict[str, Any] = {
        "source": SOURCE,
        "first": FIRST,
        "tables": TABLES,
        "days": max(days),
        "runs": RUNS_A_DAY,
        "seqs": SEQS,
        "full": PERIOD,
    }
    _execute(database, _EACH, values)
    before = 0
    for day in days:
        _execute(database, _DAYS, {**values, "from": before, "to": day})
        for age in range(6, -1, -1):
            _execute(database, _STATES, {**values, "to": day, "age": age, "seq": day * SEQS - age * SEQS})
        database.execute("vacuum analyze")
        book.upto, before = day * SEQS, day
        yield day, _look(cluster, database, book, {**values, "to": day})


def _look(cluster: Cluster, database: psycopg.Connection[Any], book: Ledger, values: dict[str, Any]) -> Look:
    tables = database.execute(_NOW.encode(), values).fetchall()
    for _ in range(2):  # the first writes the manifest that the days between would have left
        _run(book, tables)
        _execute(database, _STATES, {**values, "age": 0, "seq": book.upto})
    with _cost(database, book.root) as run:
        _run(book, tables)
    config = load(database_dsn=cluster.dsn(DATABASE), data_dir=book.root.parent)
    with (
        _cost(database, book.root) as status,
        connections.connect(cluster.dsn(DATABASE), "pipeline database") as connection,
    ):
        export_status.read(config, connection)
    with _cost(database, book.root) as compaction:
        found = plan(CompactionLedger(book.lake.ledger, book.lake.id).files(book.upto))
    if not found.merged and not found.kept:
        raise BenchmarkFailed("a compaction has found nothing to look at")
    database.execute("update pipeline.export_files set merged = 2 where merged = 0")
    database.execute("update pipeline.export_replaced set replaced_at = replaced_at - interval '2 days'")
    return Look(
        run.blocks,
        run.seconds,
        run.written,
        run.memory,
        status.blocks,
        status.seconds,
        compaction.seconds,
        len(all_files(book.root)),
    )


def _run(book: Ledger, tables: list[tuple[Any, ...]]) -> None:
    lake = exporter.open_lake(book.lake.ledger, DiskFolder(book.root), EVENTS)
    current.recover(lake)
    after, book.upto = book.upto, book.upto + 100
    export = lake.ledger.begin(lake.id, after, book.upto, None)
    schemas = {dataset: {1: {"columns": json.loads(columns), "key": [key]}} for dataset, _, key, columns in tables}
    day = str(FIRST + timedelta(days=book.upto // SEQS))
    files = [book.file(dataset, oid - 1000, after, day=day) for dataset, oid, _, _ in tables]
    ChangeFiles(lake.ledger, lake.id).publish(export, files, schemas)
    lake.ledger.commit(export)
    book.update()
    pending = current.find_outdated(lake)
    if len(pending) != TABLES or any(each.error for each in pending):
        raise BenchmarkFailed(f"{len(pending)} tables were to be folded, not {TABLES}: {pending[:1]}")


class _Cost:
    blocks = seconds = written = memory = 0.0


@contextmanager
def _cost(database: psycopg.Connection[Any], folder: Path) -> Iterator[_Cost]:
    """Of the block, once it has ended."""
    cost, before, there, began = _Cost(), blocks_read(database), file_sizes(folder), process_time()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    had = _megabytes("VmRSS")
    yield cost
    cost.seconds = process_time() - began
    cost.memory = _megabytes("VmHWM") - had
    cost.written = sum(size for path, size in file_sizes(folder).items() if there.get(path) != size)
    cost.blocks = blocks_read(database) - before


def _megabytes(what: str) -> float:
    return int(Path("/proc/self/status").read_text().partition(f"{what}:")[2].split()[0]) / 1024


def _execute(database: psycopg.Connection[Any], statements: str, values: dict[str, Any]) -> None:
    for statement in filter(str.strip, statements.split(";\n")):
        database.execute(statement.encode(), values)
