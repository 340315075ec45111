"""A lake of ten thousand runs of two hundred tables: what the next run reads and writes, beside the tenth.

The runs between are simulated in the ledger alone. What is measured is all that a run does besides reading and writing
rows: it opens the lake, publishes a file of every table, brings the manifest up, plans all folds; and `status`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from lake.changes import exporter, manifest
from lake.changes.files import ChangeFiles
from lake.folding import current
from lake.storage.folder import DiskFolder
from pipeline.config.settings import load
from pipeline.exports import status as export_status
from pipeline.postgres import connections, migrations
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.table import Table
from tests.fixtures.lake_ledger import EVENTS, Ledger, lake_ledger
from tests.fixtures.postgres import Cluster

NAME = "lake-age"
RUNS, TABLES, EARLY = 10_000, 200, 10
DATABASE = "bench_lake_age"
LIMIT = 1.2
"""How much more the last run may read and write than the tenth."""
_RELATIONS = """
    insert into pipeline.relations (source_id, epoch, relation_oid, relation_schema, relation_name, table_oid,
        table_schema, table_name, replica_identity, columns, key_columns, from_lsn)
    select %(source)s, 0, 1000 + n, 'public', 't' || n, 1000 + n, 'public', 't' || n, 'd',
        '[{"name": "id", "type_oid": 23, "type_modifier": -1, "type_name": "integer", "base_type_oid": 23, "key": true,
            "attnum": 1}]', '{id}', 1
    from generate_series(1, %(tables)s) n
"""
_AGE = """
    with run as (
        insert into pipeline.exports (lake_id, after_seq, upto_seq, state, rows, bytes, holder, committed_at)
        select l.id, g * 100, (g + 1) * 100, 'committed', %(tables)s, %(tables)s * 10, 'simulated', now()
        from pipeline.lakes l, generate_series(%(from)s::bigint, %(to)s::bigint - 1) g
        returning id, lake_id, after_seq, upto_seq
    )
    insert into pipeline.export_files (export_id, lake_id, dataset, schema_id, source_id, source_epoch, table_oid, path,
        rows, bytes, sha256, first_seq, last_seq, first_lsn, first_idx, last_lsn, last_idx, part)
    select r.id, r.lake_id, s.dataset, s.id, %(source)s, 0, 1000 + substr(s.dataset, 9)::int,
        format('changes/%%s/date=2026-11-25/%%s.parquet', s.dataset, r.after_seq), 1, 10, repeat('0', 64),
        r.after_seq + 1, r.upto_seq, r.after_seq + 1, 0, r.upto_seq, 0,
        (r.after_seq / 100 / %(full)s + 1) * %(full)s * 100
    from run r join pipeline.export_schemas s on s.lake_id = r.lake_id
"""
_PARTS = """
    update pipeline.export_datasets d set part = %(to)s * 100,
        sealed = array(select g * %(full)s * 100 from generate_series(1, %(to)s / %(full)s) g);
"""
_STATES = """
    insert into pipeline.export_tables (lake_id, source_id, source_epoch, table_oid, dataset, shows)
    select l.id, %(source)s, 0, 1000 + n, 'public.t' || n, %(seq)s
    from pipeline.lakes l, generate_series(1, %(tables)s) n
    on conflict (lake_id, source_id, source_epoch, table_oid) do update set shows = excluded.shows;
    update pipeline.export_states set superseded_at = now() where superseded_at is null;
    insert into pipeline.export_states (lake_id, dataset, seq, state, schema_version, columns, buckets, rows, bytes,
        files, source_epoch, source_table_oid, table_id, form_id)
    select t.lake_id, t.dataset, %(seq)s, 'committed', 0, '{"id": "int"}', 1, 1, 1,
        '[{"name": "bucket-00.parquet", "bucket": 0, "rows": 1, "bytes": 1, "sha256": ""}]', 0, t.table_oid, t.id, r.id
    from pipeline.export_tables t join pipeline.relations r on r.table_oid = t.table_oid;
    update pipeline.lakes set folded_upto = %(seq)s
"""
_BLOCKS = """
    select sum(coalesce(heap_blks_hit, 0) + coalesce(heap_blks_read, 0) + coalesce(idx_blks_hit, 0)
        + coalesce(idx_blks_read, 0) + coalesce(toast_blks_hit, 0) + coalesce(toast_blks_read, 0))
    from pg_statio_user_tables where schemaname = 'pipeline'
"""


@dataclass(frozen=True)
class Cost:
    """Of one run, or of one `status`."""

    blocks: float
    seconds: float
    written: float = 0.0


def report(cluster: Cluster, figures: Table, scale: float) -> None:
    """Measure the tenth run and the last, and add the figures."""
    runs = max(2 * manifest.FULL, round(RUNS * scale))
    cluster.drop(DATABASE)
    cluster.create(DATABASE)
    try:
        with tempfile.TemporaryDirectory(prefix="wal-lake-age-") as folder, _lake(cluster, Path(folder)) as book:
            early, late = _measured(cluster, book, runs)
    finally:
        cluster.drop(DATABASE)
    for what in ("run", "status"):
        for figure in ("blocks", "seconds", "written"):
            before, after = (getattr(costs[what], figure) for costs in (early, late))
            if before:
                pattern = "{:,.2f}" if figure == "seconds" else "{:,.0f}"
                figures.add(NAME, f"{what}: {figure}, the tenth", [before], pattern)
                figures.add(
                    NAME, f"{what}: {figure}, number {runs:,} ÷ the tenth", [after / before], "{:.2f}", most=LIMIT
                )


@contextmanager
def _lake(cluster: Cluster, folder: Path) -> Iterator[Ledger]:
    migrations.upgrade(cluster.dsn(DATABASE))
    with lake_ledger(cluster.dsn(DATABASE), folder / "lake") as book:
        yield book


def _measured(cluster: Cluster, book: Ledger, runs: int) -> tuple[dict[str, Cost], dict[str, Cost]]:
    values: dict[str, Any] = {"source": _source(book), "tables": TABLES, "full": manifest.FULL}
    with cluster.connect(DATABASE) as database:
        database.execute(_RELATIONS, values)
        names = [f"public.t{number}" for number in range(1, TABLES + 1)]
        for _ in range(EARLY - 1):
            book.publish(*names)
            book.update()
            _set(database, _STATES, {**values, "seq": book.upto})
        database.execute("analyze")
        early = _costs(cluster, database, book, names)
        _set(database, _STATES, {**values, "seq": book.upto})
        _set(database, _AGE, {**values, "from": EARLY, "to": runs - runs % manifest.FULL})
        book.upto = (runs - runs % manifest.FULL) * 100
        _set(database, _PARTS, {**values, "to": runs // manifest.FULL * manifest.FULL})
        for _ in range(EARLY - 1):
            book.publish(*names)
            book.update()
        _set(database, _STATES, {**values, "seq": book.upto})
        database.execute("analyze")
        late = _costs(cluster, database, book, names)
    return early, late


def _costs(cluster: Cluster, database: psycopg.Connection[Any], book: Ledger, names: list[str]) -> dict[str, Cost]:
    """One run, and one status."""
    config = load(database_dsn=cluster.dsn(DATABASE), data_dir=book.root.parent)

    def run() -> None:
        lake = exporter.open_lake(book.lake.ledger, DiskFolder(book.root), EVENTS)
        book.publish(*names)
        book.update()
        current.recover(lake)
        pending = current.find_outdated(lake)
        if len(pending) != TABLES or ChangeFiles(lake.ledger, lake.id).changed(0, 0)[0]:
            raise BenchmarkFailed(f"{len(pending)} tables were to be folded, not {TABLES}")

    def status() -> None:
        with connections.connect(cluster.dsn(DATABASE), "pipeline database") as connection:
            export_status.read(config, connection)

    return {name: _cost(database, book.root, act) for name, act in (("run", run), ("status", status))}


def _cost(database: psycopg.Connection[Any], folder: Path, act: Any) -> Cost:
    before, sizes, began = blocks_read(database), file_sizes(folder), time.process_time()
    act()
    seconds = time.process_time() - began
    new = {path: size for path, size in file_sizes(folder).items() if sizes.get(path) != size}
    return Cost(blocks_read(database) - before, seconds, sum(new.values()))


def blocks_read(database: psycopg.Connection[Any]) -> float:
    """Blocks that sessions have read of the pipeline's tables, from the cache or not."""
    time.sleep(1.5)  # until other sessions have told what they read
    database.execute("select pg_stat_force_next_flush()")
    [(blocks,)] = database.execute(_BLOCKS).fetchall()
    return float(blocks)


def file_sizes(folder: Path) -> dict[str, int]:
    """Bytes of each file in it."""
    return {str(path): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def _set(database: psycopg.Connection[Any], statements: str, values: dict[str, Any]) -> None:
    for statement in filter(str.strip, statements.split(";\n")):
        database.execute(statement.encode(), values)


def _source(book: Ledger) -> str:
    return str(book.lake.ledger.rows("select id::text from pipeline.sources")[0]["id"])
