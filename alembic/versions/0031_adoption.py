"""A backlog can become partitions of the events table as it is, instead of being moved row by row."""

from __future__ import annotations

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None
additive = True

ADOPTION = """
create table pipeline.adoptions (
    source_id uuid primary key,
    events_table text not null default '',
    run bigint not null default 0,
    generation bigint not null default 0,
    from_seq bigint,
    not_before bigint not null default 0,
    moved_run bigint not null default 0,
    held_by text,
    updated_at timestamptz not null default now()
);
comment on table pipeline.adoptions is
    'Workers that write their backlogs as partitions of the events table, and what delays them.';
comment on column pipeline.adoptions.run is
    'The number of the last run. A run begins when everything staged is in the log.';
comment on column pipeline.adoptions.from_seq is 'No other writer uses this seq or a later one; null between runs.';
comment on column pipeline.adoptions.not_before is
    'Transactions up to this commit_lsn are staged, so no run contains them.';
comment on column pipeline.adoptions.moved_run is
    'The tables of this run, and of earlier ones, no longer become partitions: their rows are moved.';

create table pipeline.adopted_tables (
    id bigint generated always as identity primary key,
    source_id uuid not null,
    run bigint not null,
    generation bigint not null,
    events_table text not null,
    table_name text not null,
    state text not null default 'waiting' check (state in ('waiting', 'moved')),
    attaches boolean not null,
    ends boolean not null,
    first_seq bigint not null,
    last_seq bigint not null,
    first_lsn bigint not null,
    last_lsn bigint not null,
    relations integer[] not null,
    filled_at timestamptz not null default now()
);
create index adopted_tables_next_idx on pipeline.adopted_tables (source_id, first_seq);
comment on table pipeline.adopted_tables is
    'Tables with rows of an events table, in the order of the log, that wait to become partitions of it.';
comment on column pipeline.adopted_tables.attaches is
    'True if the table becomes a partition; false if its rows are moved, because it has no indexes.';
comment on column pipeline.adopted_tables.ends is
    'True if the table ends with a complete transaction; false if its last transaction continues in the next table.';
create view pipeline.adopting_sources as
select a.source_id from pipeline.adoptions a
join pipeline.replication_progress p on p.source_id = a.source_id and p.worker = 0 and p.generation = a.generation
where a.from_seq is not null
union
select t.source_id from pipeline.adopted_tables t where t.state = 'waiting';
comment on view pipeline.adopting_sources is
    'Sources whose backlog has reserved the next seqs: other writers get seqs once the backlog is in the log.';
comment on column pipeline.adopted_tables.relations is 'The table versions of its rows.';

create function pipeline.keep_turn() returns trigger language plpgsql set search_path = '' as $$
begin
    if exists (
        select from pipeline.adopted_tables t where t.source_id = new.source_id and t.state = 'waiting'
            and (t.last_lsn <= new.commit_lsn or new.epoch <> old.epoch)
    ) then
        raise exception 'tables with a backlog come next in the log, which this version does not know'
            using errcode = 'object_not_in_prerequisite_state',
                hint = 'Start the newer version, until `pipeline status` shows that none waits.';
    end if;
    return null;
end $$;
create trigger shuffle_progress_keep_turn after update of commit_lsn, epoch on pipeline.shuffle_progress
    for each row when (new.commit_lsn <> old.commit_lsn or new.epoch <> old.epoch)
    execute function pipeline.keep_turn();
revoke execute on function pipeline.keep_turn from public;
comment on function pipeline.keep_turn is
    'Stops a server of an older version from moving the log past adopted tables that wait, of which it does not know.';
"""


def upgrade() -> None:
    """Two empty tables, and what holds an older version back while one of them is not."""
    op.execute(ADOPTION)


def downgrade() -> None:
    """Refuse while rows wait that only this version can bring into the log; else drop the tables."""
    op.execute("""
    do $$ begin
        if exists (select from pipeline.adopted_tables where state = 'waiting') then
            raise exception 'pipeline.adopted_tables has rows that are not in the log yet: start the newer version '
                'until `pipeline status` shows that none waits, stop it, and try again';
        end if;
    end $$;
    drop trigger shuffle_progress_keep_turn on pipeline.shuffle_progress;
    drop function pipeline.keep_turn;
    drop view pipeline.adopting_sources;
    drop table pipeline.adopted_tables, pipeline.adoptions;
    """)
