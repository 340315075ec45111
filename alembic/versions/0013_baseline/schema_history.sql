-- The forms of source tables, and the change from which each holds.

create table pipeline.relations (
    id integer generated always as identity primary key,
    source_id uuid not null references pipeline.sources,
    epoch integer not null,
    relation_oid bigint not null,
    relation_schema text not null,
    relation_name text not null,
    table_oid bigint not null,
    table_schema text not null,
    table_name text not null,
    replica_identity text not null,
    columns jsonb not null,
    key_columns text[] not null,
    from_lsn bigint not null,
    created_at timestamptz not null default now(),
    from_idx integer not null default 0,
    fingerprint jsonb,
    unique_in_root boolean,
    memberships bigint[]
);
create index relations_history_idx on pipeline.relations (source_id, relation_oid, id);
comment on table pipeline.relations is
    'The versions of each table of the source, each from an LSN on. relation_*: the replicated table or partition;'
    ' table_*: its root.';
comment on column pipeline.relations.from_idx is
    'commit_idx of the first change of this version, in the transaction at from_lsn: a transaction may alter a table.';
comment on column pipeline.relations.columns is
    'The columns. attnum: the number of the column; names: its names in the log, each from a commit_lsn and'
    ' commit_idx on.';
comment on column pipeline.relations.fingerprint is
    'The file, and the versions of pg_attribute rows, as last read for this version: they tell that a table was'
    ' rewritten.';
comment on column pipeline.relations.unique_in_root is
    'True if no two rows of the partition root share a key; null: not checked.';
comment on column pipeline.relations.memberships is
    'oids of the catalog rows by which publications publish its updates: if all of them are new, the log lacks'
    ' updates in between.';

create table pipeline.rewrites (
    id bigint generated always as identity primary key,
    source_id uuid not null references pipeline.sources,
    epoch integer not null,
    relation_oid bigint not null,
    table_schema text not null,
    table_name text not null,
    columns text[] not null,
    kind text not null check (kind in ('type', 'default', 'values')),
    version text not null,
    from_lsn bigint,
    from_idx integer,
    found_at timestamptz not null default now(),
    settled_at timestamptz,
    unique (source_id, epoch, relation_oid, kind, version)
);
comment on table pipeline.rewrites is
    'Tables whose values DDL changed without an event. For rows that were not written since, the log has the old'
    ' values.';
comment on column pipeline.rewrites.from_lsn is
    'commit_lsn of the first change after the rewrite, from_idx its commit_idx; null: none has arrived.';
comment on column pipeline.rewrites.version is 'Distinguishes the rewrite from others of these columns.';

create table pipeline.published_forms (
    source_id uuid not null references pipeline.sources,
    epoch integer not null,
    relation_oid bigint not null,
    form jsonb not null,
    published_at timestamptz not null default now(),
    primary key (source_id, epoch, relation_oid)
);
comment on table pipeline.published_forms is
    'Definitions of tables before their first change arrives, because the catalog may differ by then: of partitions,'
    ' and keys beside a full replica identity.';
