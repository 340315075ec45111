"""The ledger of Iceberg tables: it has the last commit of each, and sets all tables at once by one statement."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lake.errors import ExporterFencedError, UnfitTargetError
from lake.iceberg.names import Identifier
from lake.storage.identity import Lake

_OPEN = """
    with namespaces as (
        insert into pipeline.iceberg_namespace_properties (catalog_name, namespace, property_key, property_value)
        select $2, unnest(array['changes', 'current']), 'exists', 'true' where $3 = '' on conflict do nothing
    )
    insert into pipeline.export_iceberg (lake_id, catalog, uri, location) values ($1::text::uuid, $2, $3, $4)
    on conflict do nothing
"""
_KEPT = """
    select number, upto_seq from (
        select number, upto_seq, lead(committed_at) over (order by number) as replaced_at
        from pipeline.export_iceberg_commits where lake_id = $1::text::uuid
    ) c where replaced_at is null or replaced_at > now() - make_interval(secs => $2) order by number limit 1
"""
_TABLES = """
    select i.namespace, i.name, i.dataset, i.version, i.table_id, i.state_id, i.oldest, i.newest,
        p.metadata_location as location
    from pipeline.export_iceberg_tables i
    join pipeline.export_iceberg l using (lake_id)
    left join pipeline.iceberg_tables p
        on l.uri = '' and p.catalog_name = l.catalog and p.table_namespace = i.namespace and p.table_name = i.name
    where i.lake_id = $1::text::uuid
"""
_FILES = """
    select f.dataset, s.version, f.path, f.rows, e.upto_seq from pipeline.exports e
    join pipeline.export_files f on f.export_id = e.id join pipeline.export_schemas s on s.id = f.schema_id
    where e.lake_id = $1::text::uuid and e.state = 'committed' and e.upto_seq > $2
    order by f.first_seq, f.id
"""
_COLUMNS = """
    select distinct on (dataset, version) dataset, version, columns::text from pipeline.export_schemas
    where lake_id = $1::text::uuid and dataset = any(array(select json_array_elements_text($2::text::json)))
    order by dataset, version, id desc
"""
_STATES = """
    select t.id as table_id, t.dataset, t.source_id::text, t.source_epoch, t.table_oid, s.id as state_id, s.form_id,
        s.dataset as folder, s.seq, s.columns::text, s.files::text
    from pipeline.export_tables t
    cross join lateral (
        select * from pipeline.export_states s where s.table_id = t.id and s.state = 'committed'
        order by s.seq desc limit 1
    ) s
    where t.lake_id = $1::text::uuid and t.dataset is not null and not exists (
        select from pipeline.export_iceberg_tables i where i.lake_id = t.lake_id and i.table_id = t.id
            and i.state_id = s.id and i.dataset = t.dataset
    )
    order by t.id
"""
_HIDDEN = """
    select i.table_id from pipeline.export_iceberg_tables i
    left join pipeline.export_tables t on t.id = i.table_id
    where i.lake_id = $1::text::uuid and i.table_id is not null and t.dataset is null
"""
_WRITTEN = """
    insert into pipeline.export_iceberg_written (lake_id, path)
    select $1::text::uuid, json_array_elements_text($2::text::json) on conflict do nothing
"""
_COMMIT = """
    with given as (
        select * from json_to_recordset($6::text::json) t (namespace text, name text, had text, location text,
            dataset text, version int, table_id bigint, state_id bigint, oldest bigint, newest bigint, is_moved boolean)
    ),
    moved as (
        update pipeline.export_iceberg l set number = $2, upto_seq = $3, kept_seq = $5, committed_at = now()
        where l.lake_id = $1::text::uuid and l.number = $2 - 1 and not exists (
            select from given g left join pipeline.iceberg_tables p
                on p.catalog_name = l.catalog and p.table_namespace = g.namespace and p.table_name = g.name
            where g.is_moved and p.metadata_location is distinct from g.had
        )
        returning l.lake_id, l.catalog
    ),
    committed as (
        insert into pipeline.export_iceberg_commits (lake_id, number, upto_seq) select lake_id, $2, $3 from moved
    ),
    expired as (
        delete from pipeline.export_iceberg_commits c using moved m where c.lake_id = m.lake_id and c.number < $4
    ),
    dropped as (
        delete from pipeline.iceberg_tables p using moved m, given g where g.is_moved and g.location is null
            and p.catalog_name = m.catalog and p.table_namespace = g.namespace and p.table_name = g.name
    ),
    pointed as (
        insert into pipeline.iceberg_tables as p (catalog_name, table_namespace, table_name, metadata_location,
            iceberg_type)
        select m.catalog, g.namespace, g.name, g.location, 'TABLE' from moved m, given g
        where g.is_moved and g.location is not null
        on conflict (catalog_name, table_namespace, table_name) do update
            set metadata_location = excluded.metadata_location, previous_metadata_location = p.metadata_location
    ),
    forgotten as (
        delete from pipeline.export_iceberg_tables t using moved m, given g where g.dataset is null
            and t.lake_id = m.lake_id and t.namespace = g.namespace and t.name = g.name
    ),
    known as (
        insert into pipeline.export_iceberg_tables as t (lake_id, namespace, name, dataset, version, table_id, state_id,
            oldest, newest)
        select m.lake_id, g.namespace, g.name, g.dataset, g.version, g.table_id, g.state_id, g.oldest, g.newest
        from moved m, given g where g.dataset is not null
        on conflict (lake_id, namespace, name) do update set dataset = excluded.dataset, version = excluded.version,
            table_id = excluded.table_id, state_id = excluded.state_id, oldest = excluded.oldest,
            newest = excluded.newest
    ),
    written as (
        delete from pipeline.export_iceberg_written w using moved m where w.lake_id = m.lake_id
    ),
    replaced as (
        insert into pipeline.export_replaced (lake_id, path)
        select m.lake_id, json_array_elements_text($7::text::json) from moved m
    )
    select lake_id from moved
"""
_REPLACED = """
    with given as (
        select json_array_elements_text($2::text::json) as path
    ),
    known as (
        delete from pipeline.export_iceberg_written w using given g where w.lake_id = $1::text::uuid and w.path = g.path
    )
    insert into pipeline.export_replaced (lake_id, path) select $1::text::uuid, path from given
"""
_FORGET = """
    with gone as (
        delete from pipeline.export_iceberg where lake_id = $1::text::uuid returning *
    ),
    known as (
        delete from pipeline.export_iceberg_tables t using gone g where t.lake_id = g.lake_id
        returning t.namespace, t.name
    ),
    commits as (
        delete from pipeline.export_iceberg_commits c using gone g where c.lake_id = g.lake_id
    ),
    namespaces as (
        delete from pipeline.iceberg_namespace_properties n using gone g
        where n.catalog_name = g.catalog and g.uri = ''
    ),
    pointers as (
        delete from pipeline.iceberg_tables p using gone g, known k where p.catalog_name = g.catalog and g.uri = ''
            and p.table_namespace = k.namespace and p.table_name = k.name
        returning substr(p.metadata_location, length(g.location) + 2) as path
    )
    insert into pipeline.export_replaced (lake_id, path)
    select $1::text::uuid, regexp_replace(path, '/metadata/[^/]*$', '') from pointers where $2 = ''
    union all
    select $1::text::uuid, json_array_elements_text(nullif($2, '')::json)
"""


@dataclass(frozen=True)
class CatalogSettings:
    """A catalog's name, and its `uri`; empty: in the pipeline database."""

    catalog: str
    uri: str = ""


@dataclass(frozen=True)
class CommitHead:
    """The last commit of all tables: its number (0 before the first one), and the seq up to which they have changes."""

    number: int
    upto_seq: int


@dataclass(frozen=True)
class IcebergTable:
    """An Iceberg table as of the last commit. `version`: for changes. `table_id`, `state_id`: for a current state."""

    identifier: Identifier
    dataset: str
    version: int | None
    table_id: int | None
    state_id: int | None
    oldest: int
    newest: int
    location: str | None


@dataclass(frozen=True)
class CommitRow:
    """The row of a table in a commit. `dataset` None: the table no longer exists.

    With `is_moved`, the location of its metadata in the pipeline database changes from `had` to `location` (None: the
    table has none).
    """

    namespace: str
    name: str
    had: str | None
    location: str | None
    is_moved: bool
    dataset: str | None = None
    version: int | None = None
    table_id: int | None = None
    state_id: int | None = None
    oldest: int = 0
    newest: int = 0


class IcebergLedger:
    """The Iceberg tables of one lake, whose lock is held."""

    def __init__(self, lake: Lake) -> None:
        self._ledger = lake.ledger
        self._lake = str(lake.id)

    def read_catalog(self) -> Mapping[str, Any] | None:
        """Return the catalog, URI and location of the lake's tables; None if the lake has no Iceberg tables."""
        rows = self._ledger.rows(
            "select catalog, uri, location from pipeline.export_iceberg where lake_id = $1::text::uuid", (self._lake,)
        )
        return rows[0] if rows else None

    def begin(self, settings: CatalogSettings, location: str) -> CommitHead:
        """Store the catalog of the lake's tables. Raises UnfitTargetError if the catalog has tables of another lake."""
        others = self._ledger.rows(
            "select l.directory from pipeline.export_iceberg i join pipeline.lakes l on l.id = i.lake_id"
            " where i.catalog = $1 and i.uri = $2 and i.lake_id <> $3::text::uuid",
            (settings.catalog, settings.uri, self._lake),
        )
        if others:
            raise UnfitTargetError(
                f"the Iceberg catalog {settings.catalog} has the tables of the lake {others[0]['directory']}; "
                "name another PIPELINE_EXPORT_ICEBERG_CATALOG"
            )
        self._ledger.execute(_OPEN, (self._lake, settings.catalog, settings.uri, location))
        rows = self._ledger.rows(
            "select number, upto_seq from pipeline.export_iceberg where lake_id = $1::text::uuid", (self._lake,)
        )
        return CommitHead(**rows[0])

    def forget(self, withdrawn: Sequence[str] | None = None) -> None:
        """Forget the lake's Iceberg tables: in the pipeline database, readers find none.

        `withdrawn`: their files, which are recorded as replaced; None: their folders are recorded.
        """
        self._ledger.execute(_FORGET, (self._lake, "" if withdrawn is None else json.dumps(list(withdrawn))))

    def oldest_kept(self, seconds: float) -> CommitHead | None:
        """Return the oldest commit that readers may still read; None if there is no commit."""
        rows = self._ledger.rows(_KEPT, (self._lake, seconds))
        return CommitHead(**rows[0]) if rows else None

    def tables(self) -> list[IcebergTable]:
        """Return all tables of the lake."""
        return [
            IcebergTable((*row.pop("namespace").split("."), row.pop("name")), **row)
            for row in self._ledger.rows(_TABLES, (self._lake,))
        ]

    def files(self, after: int) -> list[dict[str, Any]]:
        """Return the files of changes of all exports that end after that seq, in order of seq."""
        return self._ledger.rows(_FILES, (self._lake, after))

    def columns(self, datasets: Iterable[str]) -> dict[tuple[str, int], dict[str, str]]:
        """Return the columns of all files, by dataset and schema version."""
        rows = self._ledger.rows(_COLUMNS, (self._lake, json.dumps(sorted(datasets))))
        return {(row["dataset"], row["version"]): json.loads(row["columns"]) for row in rows}

    def states(self) -> list[dict[str, Any]]:
        """Return the newest state version of each table whose Iceberg table has another version."""
        return self._ledger.rows(_STATES, (self._lake,))

    def hidden(self) -> set[int]:
        """Return the ids of tables that no longer have a name for readers."""
        return {row["table_id"] for row in self._ledger.rows(_HIDDEN, (self._lake,))}

    def record_written(self, paths: Iterable[str]) -> None:
        """Record files before they are written: unless the commit succeeds, they are removed."""
        self._ledger.execute(_WRITTEN, (self._lake, json.dumps(sorted(paths))))

    def unfinished_files(self) -> list[str]:
        """Return the files of a commit that did not succeed."""
        rows = self._ledger.rows(
            "select path from pipeline.export_iceberg_written where lake_id = $1::text::uuid", (self._lake,)
        )
        return [row["path"] for row in rows]

    def remove_later(self, paths: Sequence[str]) -> None:
        """Record files of a commit that did not succeed as replaced now: they are removed later."""
        self._ledger.execute(_REPLACED, (self._lake, json.dumps(list(paths))))

    def forget_written(self) -> None:
        """Forget files of a commit that did not succeed: they are removed."""
        self._ledger.execute(
            "delete from pipeline.export_iceberg_written where lake_id = $1::text::uuid", (self._lake,)
        )

    def commit(self, head: CommitHead, kept: CommitHead, rows: Sequence[CommitRow], unused: Sequence[str]) -> None:
        """Set all tables, and the lake's own row, in one statement.

        Raises ExporterFencedError if another session has changed any of them.
        """
        numbers = head.number, head.upto_seq, kept.number, kept.upto_seq
        given = json.dumps([asdict(row) for row in rows]), json.dumps(list(unused))
        if not self._ledger.rows(_COMMIT, (self._lake, *numbers, *given)):
            raise ExporterFencedError(
                "another program has written to the lake's Iceberg tables; nothing was committed, run `pipeline export"
                " run` again"
            )
