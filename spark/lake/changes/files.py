"""Lists the files of changes in the ledger, each of one table, and their columns."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lake.changes.writer import WrittenFile
from lake.errors import ExporterFencedError
from lake.ledger import LakeLedger, bigints
from lake.storage import layout

Schemas = Mapping[str, Mapping[int, Mapping[str, Any]]]
"""By dataset and schema version: `columns` (name → type, in order) and `key` (the names of the key's columns)."""


@dataclass(frozen=True)
class ChangeFile:
    """A file of changes in the lake, of one dataset and schema version.

    `source_id`, `source_epoch` and `table_oid`: the table whose changes the file has. They are None for files of an
    earlier server version, which put all tables of one name into one file. `first_lsn` and `first_idx`: the lowest
    position of a change. `last_lsn` and `last_idx`: the highest position of a change that was not retried. They are
    None if no change has a position, or if it is not known. `columns`: name → type in the file. `key`: the columns of
    the table's key at the end of the file.
    """

    path: str
    staged: str | None
    dataset: str
    version: int
    source_id: str | None
    source_epoch: int | None
    table_oid: int | None
    rows: int
    bytes: int
    sha256: str
    first_seq: int
    last_seq: int
    first_lsn: int | None
    first_idx: int | None
    last_lsn: int | None
    last_idx: int | None
    columns: Mapping[str, str]
    key: Sequence[str]


_FILES = """
    select f.path, f.staged, f.dataset, s.version, f.source_id::text, f.source_epoch, f.table_oid, f.rows, f.bytes,
        f.sha256, f.first_seq, f.last_seq, f.first_lsn, f.first_idx, f.last_lsn, f.last_idx, s.columns::text as columns,
        s.key::text as key
    from pipeline.export_files f join pipeline.export_schemas s on s.id = f.schema_id
"""
_COMMITTED = "exists (select from pipeline.exports e where e.id = f.export_id and e.state = 'committed')"
_PUBLISH = """
    with moved as (
        update pipeline.exports e set state = 'publishing', rows = $4, bytes = $5,
            last_committed_at = coalesce($6::text::timestamptz, '-infinity')
        where e.id = $1 and e.state = 'writing' returning e.id, e.lake_id
    ),
    given as (
        select m.lake_id, s.* from moved m
        cross join json_to_recordset($2::text::json) s (dataset text, version int, columns json, key json)
    ),
    known as (
        select g.*, (
            select s.id from pipeline.export_schemas s
            where s.lake_id = g.lake_id and s.dataset = g.dataset and s.version = g.version
                and s.columns::text = g.columns::text and s.key::text = g.key::text
            order by s.id desc limit 1
        ) as id
        from given g
    ),
    added as (
        insert into pipeline.export_schemas (lake_id, dataset, version, columns, key)
        select lake_id, dataset, version, columns, key from known where id is null returning id, dataset, version
    ),
    listed as (
        insert into pipeline.export_files (export_id, lake_id, dataset, schema_id, source_id, source_epoch, table_oid,
            path, staged, rows, bytes, sha256, first_seq, last_seq, first_lsn, first_idx, last_lsn, last_idx, day)
        select m.id, m.lake_id, f.dataset, s.id, f.source_id, f.source_epoch, f.table_oid, f.path, f.staged, f.rows,
            f.bytes, f.sha256, f.first_seq, f.last_seq, f.first_lsn, f.first_idx, f.last_lsn, f.last_idx, f.day
        from moved m
        cross join json_to_recordset($3::text::json) f (dataset text, version int, source_id uuid, source_epoch int,
            table_oid bigint, path text, staged text, rows bigint, bytes bigint, sha256 text, first_seq bigint,
            last_seq bigint, first_lsn bigint, first_idx int, last_lsn bigint, last_idx int, day date)
        join (select id, dataset, version from known where id is not null union all table added) s
            using (dataset, version)
    )
    select id from moved
"""
_CONVERT_OLD_ENTRIES = """
    with old as (
        update pipeline.exports e set files = null from (
            select id, files, schemas from pipeline.exports
            where lake_id = $1::text::uuid and files is not null and state in ('publishing', 'committed')
            order by id for update
        ) o where e.id = o.id returning o.id, o.files, o.schemas
    ),
    had as (
        select o.id as export_id, d.key as dataset, v.key::int as version, v.value -> 'columns' as columns,
            coalesce(v.value -> 'key', '[]') as key
        from old o, json_each(o.schemas) d, json_each(d.value) v
    ),
    added as (
        insert into pipeline.export_schemas (lake_id, dataset, version, columns, key)
        select $1::text::uuid, dataset, version, columns::json, key::json from (
            select dataset, version, columns::text, key::text, min(export_id) as since from had group by 1, 2, 3, 4
        ) each order by since returning id, dataset, version, columns::text, key::text
    ),
    folded as (
        update pipeline.lakes set folded_upto = null where id = $1::text::uuid
    )
    insert into pipeline.export_files (export_id, lake_id, dataset, schema_id, path, staged, rows, bytes, sha256,
        first_seq, last_seq)
    select o.id, $1::text::uuid, f.dataset, a.id, f.path, f.staged, f.rows, f.bytes, f.sha256, f.first_seq, f.last_seq
    from old o
    cross join jsonb_to_recordset(o.files) f (path text, staged text, dataset text, schema int, rows bigint,
        bytes bigint, sha256 text, first_seq bigint, last_seq bigint)
    join had h on h.export_id = o.id and h.dataset = f.dataset and h.version = f.schema
    join added a on a.dataset = h.dataset and a.version = h.version and a.columns = h.columns::text
        and a.key = h.key::text
    order by o.id
"""


class ChangeFiles:
    """The files of one lake. To write, use the session that holds the lake's lock; any session may read."""

    def __init__(self, ledger: LakeLedger, lake: uuid.UUID) -> None:
        self._ledger = ledger
        self._lake = str(lake)

    def convert_old_entries(self) -> None:
        """Convert the ledger's entries of earlier server versions to rows."""
        if self._ledger.is_from_older_version(uuid.UUID(self._lake)):
            self._ledger.execute(_CONVERT_OLD_ENTRIES, (self._lake,))

    def publish(self, export: int, written: Sequence[WrittenFile], schemas: Schemas) -> list[ChangeFile]:
        """Record the files of an export as part of the lake: if this exporter ends, the next one moves them into place.

        Raises ExporterFencedError.
        """
        listed = [
            {
                **{
                    name: value
                    for name, value in asdict(file).items()
                    if name not in ("path", "place", "date", "last_committed_at")
                },
                "path": file.place
                or layout.change_file(file.dataset, file.version, file.date, file.first_seq, file.last_seq),
                "staged": None if file.place else f"{layout.export_staging(export)}/{file.path.rpartition('/')[2]}",
                "day": file.date,
            }
            for file in written
        ]
        given = [
            {"dataset": dataset, "version": version, **schema}
            for dataset, versions in schemas.items()
            for version, schema in versions.items()
        ]
        latest = max((file.last_committed_at for file in written), default=None)
        sums = sum(file.rows for file in written), sum(file.bytes for file in written), latest
        if not self._ledger.rows(_PUBLISH, (export, json.dumps(given), json.dumps(listed), *sums)):
            raise ExporterFencedError(f"export {export} was taken over by another exporter; this one publishes nothing")
        return self.of_export(export)

    def of_export(self, export: int) -> list[ChangeFile]:
        """Return the files of one export, in the order in which they were written."""
        return self._read("where f.export_id = $1 order by f.id", (export,))

    def of_tables(self, tables: Iterable[int], datasets: Iterable[str], after: int, upto: int) -> list[ChangeFile]:
        """Return the files with changes of these tables in after < seq <= upto, in order of seq. `tables`: by oid.

        `datasets`: also return files of these datasets that an earlier server version wrote: they do not name their
        table.
        """
        condition = f"f.lake_id = $1::text::uuid and f.last_seq > $3 and f.first_seq <= $4 and {_COMMITTED}"
        found = self._read(
            f"where {condition} and f.table_oid = any($2::text::bigint[])",
            (self._lake, bigints(tables), after, upto),
        )
        found += self._read(
            f"where {condition} and f.table_oid is null and f.dataset = any(array(select"
            " json_array_elements_text($2::text::json)))",
            (self._lake, json.dumps(list(datasets)), after, upto),
        )
        return sorted(found, key=lambda file: (file.first_seq, file.path))

    def changed(self, after: int, upto: int) -> tuple[set[int], set[str]]:
        """Return the oids of tables with changes in the range, and the datasets of changed files that name no table."""
        found = self._ledger.rows(
            "select distinct f.table_oid, case when f.table_oid is null then f.dataset end as dataset"
            " from pipeline.exports e join pipeline.export_files f on f.export_id = e.id"
            " where e.lake_id = $1::text::uuid and e.state = 'committed' and e.upto_seq > $2 and f.last_seq > $2"
            " and f.first_seq <= $3",
            (self._lake, after, upto),
        )
        tables = {row["table_oid"] for row in found if row["table_oid"] is not None}
        return tables, {row["dataset"] for row in found if row["table_oid"] is None}

    def knows(self, dataset: str) -> bool:
        """Return True if changes were exported under that name."""
        query = "select 1 from pipeline.export_files f where f.lake_id = $1::text::uuid and f.dataset = $2"
        return bool(self._ledger.rows(f"{query} and {_COMMITTED} limit 1", (self._lake, dataset)))

    def last(self, tables: Iterable[int], datasets: Iterable[str], upto: int) -> list[ChangeFile]:
        """Return the newest files with changes up to that seq, newest first.

        For each table (by oid), this is the newest file whose last position is known. For each of `datasets`, these are
        all files of earlier server versions.
        """
        found = self._read(
            "where f.id in ("
            " select l.id from unnest($2::text::bigint[]) t (oid), lateral ("
            "  select f.id from pipeline.export_files f where f.lake_id = $1::text::uuid and f.table_oid = t.oid"
            f"  and f.first_seq <= $3 and f.last_lsn is not null and {_COMMITTED} order by f.last_seq desc limit 1"
            " ) l)",
            (self._lake, bigints(tables), upto),
        )
        found += self._read(
            f"where f.lake_id = $1::text::uuid and f.first_seq <= $3 and f.table_oid is null and {_COMMITTED}"
            " and f.dataset = any(array(select json_array_elements_text($2::text::json)))",
            (self._lake, json.dumps(list(datasets)), upto),
        )
        return sorted(found, key=lambda file: file.last_seq, reverse=True)

    def newest_schemas(self) -> dict[str, dict[int, Mapping[str, str]]]:
        """Return the newest columns of every dataset, by schema version. Columns are only added or widened."""
        found = self._ledger.rows(
            "select distinct on (dataset, version) dataset, version, columns::text from pipeline.export_schemas"
            " where lake_id = $1::text::uuid order by dataset, version, id desc",
            (self._lake,),
        )
        schemas: dict[str, dict[int, Mapping[str, str]]] = {}
        for row in found:
            schemas.setdefault(row["dataset"], {})[row["version"]] = json.loads(row["columns"])
        return schemas

    def _read(self, condition: str, parameters: tuple[Any, ...]) -> list[ChangeFile]:
        return [
            ChangeFile(**{**row, "columns": json.loads(row["columns"]), "key": json.loads(row["key"])})
            for row in self._ledger.rows(_FILES + condition, parameters)
        ]
