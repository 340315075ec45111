"""The ledger of compactions: it finds small new files, records merged files, and switches the lake to these."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lake.compaction.plan import MergeCandidate
from lake.errors import ExporterFencedError
from lake.ledger import LakeLedger, bigints, holder

SETTLES = 3600
"""Seconds after midnight (UTC) for which a day stays open, because some of its commits may not be exported yet."""
WAITS = 3600
"""Files of an open day are merged after this many seconds."""
_FILES = """
    with pending as (
        select f.table_oid, f.day from pipeline.export_files f
        where f.lake_id = $1::text::uuid and f.day is not null and f.merged < 2 group by 1, 2
    ),
    since as (
        select p.table_oid, min(d.first_seq) as seq from pending p
        cross join lateral (
            select min(f.first_seq) as first_seq from pipeline.export_files f
            where f.lake_id = $1::text::uuid and f.table_oid = p.table_oid and f.day = p.day
        ) d group by 1
    )
    select f.id, f.export_id, e.upto_seq, f.dataset, s.version, f.schema_id, f.day::text, f.source_id::text,
        f.source_epoch, f.table_oid, f.path, f.rows, f.bytes, f.sha256, f.first_seq, f.last_seq, f.first_lsn,
        f.first_idx, f.last_lsn, f.last_idx, f.merged as level,
        f.day >= ((now() - make_interval(secs => $3)) at time zone 'UTC')::date as is_open,
        e.committed_at <= now() - make_interval(secs => $4) as has_waited
    from since p
    join pipeline.export_files f
        on f.lake_id = $1::text::uuid and f.table_oid = p.table_oid and f.last_seq >= p.seq
    join pipeline.export_schemas s on s.id = f.schema_id
    join pipeline.exports e on e.id = f.export_id and e.state = 'committed' and e.upto_seq <= $2
"""
_FIXED = """
    select f.path from pipeline.export_files f
    where f.lake_id = $1::text::uuid and f.day is null and f.path not like 'files/%'
        and f.dataset = any(array(select json_array_elements_text($2::text::json)))
"""
_BEGIN = """
    insert into pipeline.export_compactions (lake_id, holder, written, replaced, files_before, files_after)
    values ($1::text::uuid, $2, '[]', '[]', 0, 0) returning id
"""
_PLANNED = """
    update pipeline.export_compactions set written = $2::text::json, replaced = $3::text::json, files_before = $4,
        files_after = $5, bytes = $6
    where id = $1 and state = 'writing' returning id
"""
_FAIL = """
    with given_up as (
        update pipeline.export_compactions c
        set state = 'failed', finished_at = now(), reason = $2, written = null, replaced = null
        from (select id, written from pipeline.export_compactions where id = $1 for update) before
        where c.id = before.id and c.state = 'writing' returning c.lake_id, before.written
    )
    insert into pipeline.export_replaced (lake_id, path)
    select g.lake_id, w.path from given_up g cross join json_to_recordset(g.written) w (path text)
"""
_SWITCHED = "update pipeline.export_compactions set state = 'switched' where id = $1 and state = 'writing' returning id"
_REPLACED = """
    with gone as (
        delete from pipeline.export_files f where f.id = any($1::text::bigint[])
        returning f.id, f.lake_id, f.dataset, f.path, f.part
    ),
    kept as (
        insert into pipeline.export_replaced (lake_id, path) select lake_id, path from gone
    )
    select id, dataset, part from gone
"""
_ADDED = """
    insert into pipeline.export_files (export_id, lake_id, dataset, schema_id, source_id, source_epoch, table_oid, path,
        rows, bytes, sha256, first_seq, last_seq, first_lsn, first_idx, last_lsn, last_idx, day, merged)
    select f.export_id, $1::text::uuid, f.dataset, f.schema_id, f.source_id, f.source_epoch, f.table_oid, f.path,
        f.rows, f.bytes, f.sha256, f.first_seq, f.last_seq, f.first_lsn, f.first_idx, f.last_lsn, f.last_idx, f.day,
        f.level
    from json_to_recordset($2::text::json) f (export_id bigint, dataset text, schema_id bigint, source_id uuid,
        source_epoch int, table_oid bigint, path text, rows bigint, bytes bigint, sha256 text, first_seq bigint,
        last_seq bigint, first_lsn bigint, first_idx int, last_lsn bigint, last_idx int, day date, level smallint)
"""
_OPENED = """
    with parts as (
        select dataset, part from json_to_recordset($2::text::json) p (dataset text, part bigint)
    ),
    files as (
        update pipeline.export_files f set part = null from parts p
        where f.lake_id = $1::text::uuid and f.dataset = p.dataset and f.part = p.part
    ),
    replaced as (
        insert into pipeline.export_replaced (lake_id, path)
        select $1::text::uuid, format('manifest/%s/%s.json', dataset, part) from parts
    )
    update pipeline.export_datasets d
    set sealed = array(select s from unnest(d.sealed) with ordinality u (s, n)
        where s not in (select part from parts p where p.dataset = d.dataset) order by n)
    where d.lake_id = $1::text::uuid and d.dataset in (select dataset from parts)
"""


@dataclass(frozen=True)
class ListedFile:
    """A file of a compaction, with the dataset and schema version of its Iceberg table."""

    path: str
    dataset: str
    version: int


@dataclass(frozen=True)
class UnfinishedCompaction:
    """A compaction whose process ended before the compaction was done."""

    id: int
    written: Sequence[ListedFile]
    replaced: Sequence[ListedFile]


class CompactionLedger:
    """The compactions of one lake."""

    def __init__(self, ledger: LakeLedger, lake: uuid.UUID) -> None:
        self._ledger = ledger
        self._lake = str(lake)

    def lock(self) -> bool:
        """Become the lake's only compaction until this session ends. Return False if another one is running."""
        found = self._ledger.rows(
            "select pg_try_advisory_lock(hashtextextended('pipeline compaction ' || $1, 0)) as locked", (self._lake,)
        )
        return bool(found[0]["locked"])

    def files(self, upto: int) -> list[MergeCandidate]:
        """Return the files of all tables with small new files, beginning with the first day that has such files.

        Files of exports that go beyond `upto` are excluded.
        """
        rows = self._ledger.rows(_FILES, (self._lake, upto, float(SETTLES), float(WAITS)))
        return [MergeCandidate(**row) for row in rows]

    def iceberg_upto(self) -> int | None:
        """Return the seq up to which the lake's Iceberg tables are; None if it has no Iceberg tables."""
        rows = self._ledger.rows(
            "select upto_seq from pipeline.export_iceberg where lake_id = $1::text::uuid", (self._lake,)
        )
        return int(rows[0]["upto_seq"]) if rows else None

    def keep_files(self, files: Iterable[MergeCandidate]) -> None:
        """Mark files that no compaction will merge again."""
        self._ledger.execute(
            "update pipeline.export_files set merged = 2 where id = any($1::text::bigint[])",
            (bigints(file.id for file in files),),
        )

    def begin(self) -> int:
        """Begin a compaction, and return its id."""
        return int(self._ledger.rows(_BEGIN, (self._lake, holder()))[0]["id"])

    def record_plan(
        self, number: int, written: Sequence[ListedFile], replaced: Sequence[ListedFile], size: int
    ) -> None:
        """Record files before they are written: unless the lake switches to them, the next compaction removes them."""
        paths = (json.dumps([asdict(path) for path in each]) for each in (written, replaced))
        self._ledger.step("compaction", _PLANNED, (number, *paths, len(replaced), len(written), size))

    def switch(self, number: int, made: Sequence[Mapping[str, Any]], replaced: Sequence[MergeCandidate]) -> None:
        """Replace files by merged files in the ledger, within a transaction. Raises ExporterFencedError."""
        self._ledger.step("compaction", _SWITCHED, (number,))
        gone = self._ledger.rows(_REPLACED, (bigints(file.id for file in replaced),))
        if len(gone) != len(replaced):
            raise ExporterFencedError(
                f"compaction {number}: files that it merges were replaced by another one; nothing is changed"
            )
        self._ledger.execute(_ADDED, (self._lake, json.dumps(list(made))))
        parts = {(row["dataset"], row["part"]) for row in gone if row["part"] is not None}
        if parts:
            given = [{"dataset": dataset, "part": part} for dataset, part in sorted(parts)]
            self._ledger.execute(_OPENED, (self._lake, json.dumps(given)))

    def fixed_folders(self, datasets: Iterable[str]) -> set[str]:
        """Return folders of days that hold the only path of a file, because an earlier server version wrote it."""
        rows = self._ledger.rows(_FIXED, (self._lake, json.dumps(sorted(datasets))))
        return {row["path"].rpartition("/")[0] for row in rows}

    def remove_later(self, paths: Iterable[str]) -> None:
        """Record files that nothing uses, if they exist: they are removed as replaced files are."""
        if names := sorted(paths):
            self._ledger.execute(
                "insert into pipeline.export_replaced (lake_id, path)"
                " select $1::text::uuid, json_array_elements_text($2::text::json)",
                (self._lake, json.dumps(names)),
            )

    def unfinished(self, state: str) -> list[UnfinishedCompaction]:
        """Return compactions in that state: writing or switched."""
        rows = self._ledger.rows(
            "select id, written::text, replaced::text from pipeline.export_compactions"
            " where lake_id = $1::text::uuid and state = $2 and state in ('writing', 'switched') order by id",
            (self._lake, state),
        )
        return [
            UnfinishedCompaction(row["id"], *(_paths(row[name]) for name in ("written", "replaced"))) for row in rows
        ]

    def mark_done(self, number: int) -> None:
        """Mark a compaction done: readers by glob and manifest find the new files. Forget those of 30 days ago."""
        self._ledger.execute(
            "with old as (delete from pipeline.export_compactions where lake_id = $2::text::uuid and id < $1"
            " and finished_at < now() - interval '30 days')"
            " update pipeline.export_compactions set state = 'done', finished_at = now(), written = null,"
            " replaced = null where id = $1 and state = 'switched'",
            (number, self._lake),
        )

    def fail(self, number: int, reason: str) -> None:
        """Mark a compaction failed: the lake is unchanged, and files that it may have written are removed later."""
        self._ledger.execute(_FAIL, (number, reason))


def _paths(text: str) -> list[ListedFile]:
    return [ListedFile(**each) for each in json.loads(text)]
