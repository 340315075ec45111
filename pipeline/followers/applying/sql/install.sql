-- Create the schema `pipeline_follower`, which a follower's database needs.
create schema if not exists pipeline_follower;
comment on schema pipeline_follower is {version};
create table if not exists pipeline_follower.position (
    source_database_id uuid not null,
    follower text not null,
    source_epoch integer not null,
    seq bigint not null,
    commit_lsn bigint,
    committed_at timestamptz,
    applied_at timestamptz not null default now(),
    rewrites_upto bigint,
    generation bigint not null default 0,
    released bigint,
    primary key (source_database_id, follower)
);
comment on table pipeline_follower.position is
    'The position up to which the log is applied to this database. It moves in the transaction that writes the rows.';
comment on column pipeline_follower.position.rewrites_upto is
    'Up to this number of pipeline.rewrites, tables that DDL has rewritten are copied again, or will be.';
comment on column pipeline_follower.position.generation is
    'Grows whenever the list of tables that follow the log changes: an applier with an older generation writes nothing.';
comment on column pipeline_follower.position.released is
    'The registration that was released: nothing more is applied for it.';
create table if not exists pipeline_follower.tables (
    source_database_id uuid not null,
    follower text not null,
    table_oid bigint not null,
    table_schema text not null,
    table_name text not null,
    primary key (source_database_id, follower, table_oid)
);
comment on table pipeline_follower.tables is
    'The tables of this database that the log of a source feeds: their oids at the source, and their names here.';
create table if not exists pipeline_follower.beginnings (
    source_database_id uuid not null,
    follower text not null,
    registration bigint not null,
    began_at timestamptz not null default now(),
    primary key (source_database_id, follower)
);
comment on table pipeline_follower.beginnings is
    'The registration for which the follower has begun: a later registration of the same name begins again.';
create table if not exists pipeline_follower.copies (
    source_database_id uuid not null,
    follower text not null,
    table_oid bigint not null,
    source_epoch integer,
    snapshot text,
    lsn bigint,
    form jsonb,
    rows bigint,
    copied_at timestamptz,
    wanted_seq bigint,
    formed_epoch integer,
    formed_lsn bigint,
    wanted_at timestamptz,
    generation bigint,
    is_first boolean not null default false,
    primary key (source_database_id, follower, table_oid)
);
comment on table pipeline_follower.copies is
    'Copies of tables, by their oids at the source, and their snapshots; null: not copied yet. Events before that LSN are not applied if the snapshot contains them.';
alter table pipeline_follower.copies add column if not exists is_first boolean not null default false;
comment on column pipeline_follower.copies.is_first is
    'True for a table that was never copied: its rows are not from the source.';
create table if not exists pipeline_follower.unmade (
    source_database_id uuid not null,
    follower text not null,
    table_oid bigint not null,
    place integer not null,
    statement text not null,
    primary key (source_database_id, follower, table_oid, place)
);
comment on table pipeline_follower.unmade is
    'Statements that create keys, indexes and checks of tables, by their oids at the source, after their rows are copied.';
do $$
begin
    insert into pipeline_follower.unmade select source_database_id, follower, 0, 1, after_copy
        from pipeline_follower.beginnings where after_copy is not null;
    alter table pipeline_follower.beginnings drop column after_copy;
exception when undefined_column then
    null; -- created without that column
end $$;
create table if not exists pipeline_follower.checks (
    source_database_id uuid not null,
    follower text not null,
    table_oid bigint not null,
    relation oid not null,
    name text not null,
    is_valid boolean not null,
    reason text,
    primary key (source_database_id, follower, relation, name)
);
comment on table pipeline_follower.checks is
    'Checks that were created with tables, by their oids at the source, and their table or partition here.';
comment on column pipeline_follower.checks.is_valid is
    'True if the check is valid at the source.';
comment on column pipeline_follower.checks.reason is
    'Why a check that is valid at the source is not valid here; null: it is valid, or was not tried.';
create table if not exists pipeline_follower.forms (
    source_database_id uuid not null,
    follower text not null,
    table_oid bigint not null,
    table_schema text not null,
    table_name text not null,
    source_epoch integer not null,
    lsn bigint not null,
    idx integer not null,
    changed_at timestamptz not null default now(),
    primary key (source_database_id, follower, table_oid)
);
comment on table pipeline_follower.forms is
    'The versions of tables that schema changes have altered, by their oids at the source: their names here, and the place from which on the source has that version.';
create table if not exists pipeline_follower.partitions (
    source_database_id uuid not null,
    follower text not null,
    table_oid bigint not null,
    looked_upto bigint not null,
    kept bigint[] not null,
    primary key (source_database_id, follower, table_oid)
);
comment on table pipeline_follower.partitions is
    'Up to which number of a partition change each table, by its oid at the source, has followed the source.';
comment on column pipeline_follower.partitions.kept is
    'Numbers of the changes by which a partition left whose rows stay here, because this table has other partitions.';
drop table if exists pipeline_follower.enums;
create table if not exists pipeline_follower.types (
    source_database_id uuid not null,
    follower text not null,
    type_schema text not null,
    type_name text not null,
    type_oid bigint not null,
    parts jsonb not null,
    primary key (source_database_id, follower, type_schema, type_name)
);
comment on table pipeline_follower.types is
    'Enums and composite types as the source had them: the type''s oid there, and its labels by oid or its attributes by number.';
comment on column pipeline_follower.copies.form is
    'The columns that were copied. Before the copy, or if the source dropped the table before: its definition here, if known.';
comment on column pipeline_follower.copies.wanted_seq is
    'The seq after which no event is applied to a table until it is copied again, while others follow the log; null: it follows, too.';
comment on column pipeline_follower.copies.formed_lsn is
    'Until it is copied again, a table has the version that the source''s table had at this commit, in formed_epoch.';
comment on column pipeline_follower.copies.generation is
    'The generation of the position when the copy was requested: a copy that began before must not be used.';
create or replace function pipeline_follower.document(written text) returns jsonb
language plpgsql immutable strict set search_path = ''
as $$
begin
    return written::jsonb;
exception when data_exception or program_limit_exceeded then
    return null;
end $$;
comment on function pipeline_follower.document(text) is 'A json text as jsonb; null if jsonb does not accept it.';
create table if not exists pipeline_follower.skipped (
    source_database_id uuid not null,
    follower text not null,
    first_seq bigint not null,
    last_seq bigint not null,
    source_epoch integer not null,
    commit_lsn bigint,
    committed_at timestamptz,
    events bigint not null,
    tables text[] not null,
    reason text,
    skipped_at timestamptz not null default now(),
    skipped_by text not null default session_user,
    primary key (source_database_id, follower, first_seq)
);
comment on table pipeline_follower.skipped is
    'Transactions of the log that are not in this database, because a user has skipped them.';
