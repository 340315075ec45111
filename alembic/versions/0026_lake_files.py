"""Files of a lake are rows, which an export asks for by index: its cost does not grow with what is in the lake."""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None
additive = True

LAKE_FILES = """
create table pipeline.export_schemas (
    id bigint generated always as identity primary key,
    lake_id uuid not null references pipeline.lakes (id),
    dataset text not null,
    version integer not null,
    columns json not null,
    key json not null
);
create index export_schemas_newest_idx on pipeline.export_schemas (lake_id, dataset, version, id);
comment on table pipeline.export_schemas is
    'Columns and key of the files of a dataset and schema version: a newer row has more columns, or wider types.';

create table pipeline.export_files (
    id bigint generated always as identity primary key,
    export_id bigint not null references pipeline.exports (id),
    lake_id uuid not null references pipeline.lakes (id),
    dataset text not null,
    schema_id bigint not null references pipeline.export_schemas (id),
    source_id uuid,
    source_epoch integer,
    table_oid bigint,
    path text not null,
    staged text,
    rows bigint not null,
    bytes bigint not null,
    sha256 text not null,
    first_seq bigint not null,
    last_seq bigint not null,
    first_lsn bigint,
    first_idx integer,
    last_lsn bigint,
    last_idx integer,
    part bigint
);
create index export_files_export_idx on pipeline.export_files (export_id);
create index export_files_table_idx on pipeline.export_files (lake_id, table_oid, last_seq);
create index export_files_dataset_idx on pipeline.export_files (lake_id, dataset, last_seq);
create index export_files_open_idx on pipeline.export_files (lake_id, dataset) where part is null;
comment on table pipeline.export_files is
    'Files of changes. They are in the lake when their export is committed.';
comment on column pipeline.export_files.table_oid is
    'The table of all its changes; null: an earlier version wrote the file, with the changes of all tables of that'
    ' name.';
comment on column pipeline.export_files.first_lsn is
    'The lowest commit_lsn in the file, with the lowest commit_idx; last_lsn has the highest. They tell which'
    ' versions of the table the file has.';
comment on column pipeline.export_files.staged is 'The path of the file before its export was published.';
comment on column pipeline.export_files.part is
    'The full part of the manifest that lists the file; null: the newest part lists it.';

create table pipeline.export_datasets (
    lake_id uuid not null references pipeline.lakes (id),
    dataset text not null,
    part bigint not null,
    sealed bigint[] not null default '{}',
    primary key (lake_id, dataset)
);
comment on table pipeline.export_datasets is
    'The head of a lake''s manifest: the newest part of each dataset, and the parts that are full.';

create table pipeline.export_tables (
    id bigint generated always as identity primary key,
    lake_id uuid not null references pipeline.lakes (id),
    source_id uuid not null,
    source_epoch integer not null,
    table_oid bigint not null,
    dataset text,
    shows bigint,
    unique (lake_id, source_id, source_epoch, table_oid)
);
create index export_tables_dataset_idx on pipeline.export_tables (lake_id, dataset);
comment on table pipeline.export_tables is
    'Tables with a current state, by the oid that each had in the first epoch that knows it, even if they are renamed.';
comment on column pipeline.export_tables.dataset is
    'The name of the table in `current`; null: it has none, because it was renamed, or another table has that name.';
comment on column pipeline.export_tables.shows is 'The seq to which `latest` is known to be set; null: it must be set.';

create table pipeline.export_replaced (
    id bigint generated always as identity primary key,
    lake_id uuid not null references pipeline.lakes (id),
    path text not null,
    replaced_at timestamptz not null default now()
);
create index export_replaced_idx on pipeline.export_replaced (lake_id, replaced_at);
comment on table pipeline.export_replaced is
    'Files that newer ones have replaced. They stay for a while, because a reader may still read them.';

alter table pipeline.export_states add column table_id bigint,
    add column form_id integer, add column superseded_at timestamptz;
comment on column pipeline.export_states.form_id is
    'The table version, a row of pipeline.relations, whose columns it has.';
comment on column pipeline.export_states.superseded_at is 'When a newer version replaced it; null: it is the newest.';
create index export_states_table_idx on pipeline.export_states (table_id, seq) where state = 'committed';
create index export_states_superseded_idx on pipeline.export_states (lake_id, superseded_at)
    where superseded_at is not null;
create index export_states_unfinished_idx on pipeline.export_states (lake_id) where state = 'writing';
alter table pipeline.exports add column last_committed_at timestamptz;
comment on column pipeline.exports.last_committed_at is
    'The latest commit in the range; -infinity: it has none; null: an earlier version wrote the row.';
create index exports_unlisted_idx on pipeline.exports (lake_id, id) where files is not null;
comment on column pipeline.exports.files is 'Files that an earlier version wrote; they become rows of export_files.';
comment on column pipeline.exports.schemas is 'Schemas that an earlier version wrote.';

create index relations_name_idx on pipeline.relations (table_schema, table_name, id);
"""
WRITTEN_BACK = """
update pipeline.exports e set files = coalesce(f.files, '[]'), schemas = coalesce(s.schemas, '{}')
from pipeline.exports o
left join (
    select f.export_id, jsonb_agg(jsonb_strip_nulls(jsonb_build_object('path', f.path, 'staged', f.staged,
        'dataset', f.dataset, 'schema', s.version, 'rows', f.rows, 'bytes', f.bytes, 'sha256', f.sha256,
        'first_seq', f.first_seq, 'last_seq', f.last_seq)) order by f.id) as files
    from pipeline.export_files f join pipeline.export_schemas s on s.id = f.schema_id group by f.export_id
) f on f.export_id = o.id
left join (
    select d.export_id, json_object_agg(d.dataset, d.versions) as schemas
    from (
        select f.export_id, s.dataset,
            json_object_agg(s.version, json_build_object('columns', s.columns, 'key', s.key)) as versions
        from (select distinct export_id, schema_id from pipeline.export_files) f
        join pipeline.export_schemas s on s.id = f.schema_id group by f.export_id, s.dataset
    ) d group by d.export_id
) s on s.export_id = o.id
where o.id = e.id and o.files is null and o.state in ('publishing', 'committed');
drop index pipeline.relations_name_idx, pipeline.exports_unlisted_idx,
    pipeline.export_states_unfinished_idx, pipeline.export_states_superseded_idx, pipeline.export_states_table_idx;
alter table pipeline.export_states drop column table_id, drop column form_id, drop column superseded_at;
alter table pipeline.exports drop column last_committed_at;
drop table pipeline.export_replaced, pipeline.export_tables, pipeline.export_datasets, pipeline.export_files,
    pipeline.export_schemas;
comment on column pipeline.exports.files is 'Files that an earlier version wrote; they become rows of export_files.';
comment on column pipeline.exports.schemas is 'Schemas that an earlier version wrote.';
"""


def upgrade() -> None:
    """Add empty tables; the next export fills them from what the ledger has."""
    op.execute(LAKE_FILES)


def downgrade() -> None:
    """Write the files back to where the version before reads them; names of moved tables are forgotten."""
    op.execute(WRITTEN_BACK)
