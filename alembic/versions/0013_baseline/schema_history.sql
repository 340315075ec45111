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
    'Every form a source table has had, and from which LSN: relation_* as replicated, table_* the partition root.';
comment on column pipeline.relations.from_idx is
    'commit_idx of the first change of that form, in the transaction at from_lsn: a transaction may alter a table.';
comment on column pipeline.relations.columns is
    'Per column also attnum, and names: what the log calls its values, from which commit_lsn and commit_idx on.';
comment on column pipeline.relations.fingerprint is
    'File and versions of pg_attribute rows as last read for this form: what tells a rewritten table.';
comment on column pipeline.relations.unique_in_root is
    'No two rows of the partition root share a key; null when it was not asked.';
comment on column pipeline.relations.memberships is
    'oids of what makes publications publish its updates: when all of them are new, updates in between are in no log.';

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
    'Tables whose values DDL changed without an event: rows not written since are in the log as they were before.';
comment on column pipeline.rewrites.from_lsn is
    'commit_lsn of the first change after it, from_idx its commit_idx; null while none has come.';
comment on column pipeline.rewrites.version is 'Distinguishes it from other rewrites of these columns.';

create table pipeline.published_forms (
    source_id uuid not null references pipeline.sources,
    epoch integer not null,
    relation_oid bigint not null,
    form jsonb not null,
    published_at timestamptz not null default now(),
    primary key (source_id, epoch, relation_oid)
);
comment on table pipeline.published_forms is
    'Tables before their first change came, where the catalog may tell another story by then: partitions that are'
    ' detached or dropped meanwhile, keys beside a full replica identity.';
