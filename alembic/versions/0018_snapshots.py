"""Rows that were there before a table was captured: what is read of it, range by range, and which tables are whole."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None
additive = True

SNAPSHOTS = """
alter table pipeline.sources add column reads_tables boolean, add column reads_from timestamptz;
comment on column pipeline.sources.reads_tables is
    'True if tables that join are read. False: those that the next check finds are not read; then it becomes true.';
comment on column pipeline.sources.reads_from is
    'Tables that joined after this time are read, even if that next check finds them.';
update pipeline.sources set reads_tables = false, reads_from = now();

create table pipeline.backfills (
    id bigint generated always as identity primary key,
    source_id uuid not null references pipeline.sources (id),
    epoch integer not null,
    table_oid bigint not null,
    table_schema text not null,
    table_name text not null,
    kind text not null check (kind in ('initial', 'asked')),
    condition text,
    state text not null default 'waiting'
        check (state in ('waiting', 'reading', 'paused', 'complete', 'failed', 'cancelled')),
    reason text,
    after_xid xid8,
    after_lsn bigint,
    since_seqs jsonb,
    files jsonb not null default '{}',
    by_key boolean,
    rows_estimated bigint,
    bytes_estimated bigint,
    ranges_all integer not null default 0,
    ranges_done integer not null default 0,
    rows_read bigint not null default 0,
    rows_added bigint not null default 0,
    events_table text,
    first_seq bigint,
    last_seq bigint,
    created_at timestamptz not null default now(),
    started_at timestamptz,
    finished_at timestamptz
);
create unique index backfills_open_idx on pipeline.backfills (source_id, table_oid)
    where state in ('waiting', 'reading', 'paused');
create index backfills_table_idx on pipeline.backfills (source_id, table_oid, id);
comment on table pipeline.backfills is
    'Readings of the rows of a table: because it joined a publication, or because a user requested it.';
comment on column pipeline.backfills.table_oid is 'The table; for partitions, their root.';
comment on column pipeline.backfills.condition is 'SQL that is true for the rows to read; null: all rows.';
comment on column pipeline.backfills.reason is 'What it waits for, or why it has failed.';
comment on column pipeline.backfills.after_xid is
    'The reading begins once all transactions with a smaller xid have ended, because these may have written before'
    ' the table joined.';
comment on column pipeline.backfills.after_lsn is 'The end of the source''s WAL when after_xid was read.';
comment on column pipeline.backfills.since_seqs is
    'By events table, the last seq before after_xid was read: transactions from that xid on have later seqs.';
comment on column pipeline.backfills.files is
    'pg_relation_filenode of each planned relation, by oid: in another file, rows are in other blocks.';
comment on column pipeline.backfills.by_key is
    'True if keys identify the rows; if false, the table is read as one range.';
comment on column pipeline.backfills.rows_added is
    'The number of rows that became events; for the other rows, the log had a newer event.';
comment on column pipeline.backfills.last_seq is 'Seq of its last event in events_table.';

create table pipeline.snapshot_ranges (
    id bigint generated always as identity primary key,
    source_id uuid not null references pipeline.sources (id),
    epoch integer not null,
    backfill_id bigint not null references pipeline.backfills (id),
    relation_oid bigint not null,
    table_oid bigint not null,
    file bigint,
    from_block bigint,
    until_block bigint,
    keys jsonb,
    state text not null default 'planned' check (state in ('planned', 'held', 'reading', 'staged', 'placed', 'moved')),
    token uuid,
    reader_pid integer,
    reader_start timestamptz,
    segment_id integer,
    snapshot pg_snapshot,
    since_seqs jsonb,
    marker_xid xid8,
    version jsonb,
    by_key boolean,
    rows_read integer not null default 0,
    seen_lsn bigint,
    commit_lsn bigint,
    committed_at timestamptz,
    xid bigint,
    relation_id integer,
    events_table text,
    first_seq bigint,
    last_seq bigint,
    rows_added integer not null default 0,
    left_out text[]
);
create index snapshot_ranges_state_idx on pipeline.snapshot_ranges (source_id, state, id);
create unique index snapshot_ranges_token_idx on pipeline.snapshot_ranges (token);
create index snapshot_ranges_placed_idx on pipeline.snapshot_ranges (source_id, commit_lsn) where state = 'placed';
create index snapshot_ranges_backfill_idx on pipeline.snapshot_ranges (backfill_id, state);
comment on table pipeline.snapshot_ranges is
    'Parts of tables that must still be read, or whose rows are staged and have not all become events.';
comment on column pipeline.snapshot_ranges.file is
    'pg_relation_filenode when the range was planned: another file has other blocks.';
comment on column pipeline.snapshot_ranges.keys is
    'Only rows with these keys, a JSON array of arrays of texts; null: a range of blocks.';
comment on column pipeline.snapshot_ranges.state is
    'held: not read now. staged: its rows are durable. placed: its marker has arrived, which gives it its place in'
    ' the log.';
comment on column pipeline.snapshot_ranges.token is
    'Identifies the marker, a logical message of the transaction that reads the range.';
comment on column pipeline.snapshot_ranges.snapshot is 'The snapshot of the transaction that read the range.';
comment on column pipeline.snapshot_ranges.since_seqs is
    'By events table: transactions that are not visible in snapshot, and commit before the marker, come after this'
    ' seq.';
comment on column pipeline.snapshot_ranges.marker_xid is
    'The transaction that reads the range; the server asks the source if it has committed.';
comment on column pipeline.snapshot_ranges.version is
    'The version of the table when the range was read, with its fingerprint.';
comment on column pipeline.snapshot_ranges.by_key is 'True if keys identify its rows.';
comment on column pipeline.snapshot_ranges.left_out is
    'For a range of keys: the keys for which the log had a newer event.';
comment on column pipeline.snapshot_ranges.seen_lsn is
    'The marker committed before this LSN: a worker that has staged up to here must have placed the range.';

create table pipeline.snapshot_tables (
    source_id uuid not null references pipeline.sources (id),
    table_oid bigint not null,
    epoch integer not null,
    table_schema text not null,
    table_name text not null,
    joined bigint,
    keyed boolean not null,
    captured boolean not null default true,
    backfill_id bigint references pipeline.backfills (id),
    reason text,
    since_seqs jsonb not null default '{}',
    events_table text,
    first_seq bigint,
    complete_seq bigint,
    primary key (source_id, table_oid)
);
comment on table pipeline.snapshot_tables is
    'Every table that is or was captured, and the seq from which on the log has it completely.';
comment on column pipeline.snapshot_tables.joined is 'The id in captured_tables of when it last joined; null: unknown.';
comment on column pipeline.snapshot_tables.keyed is 'True if updates and deletes are captured.';
comment on column pipeline.snapshot_tables.backfill_id is 'The backfill that reads the complete table.';
comment on column pipeline.snapshot_tables.reason is 'Why it is not read.';
comment on column pipeline.snapshot_tables.since_seqs is
    'By events table: after this seq its changes are in the log without a gap.';
comment on column pipeline.snapshot_tables.complete_seq is
    'From this seq on, folding the log gives the complete table; null: not yet.';
"""


def upgrade() -> None:
    """Create the tables of snapshots. Captured tables stay as they are: existing rows are read only on request."""
    op.execute(SNAPSHOTS)


def downgrade() -> None:
    """Forget what was read; its events stay."""
    op.execute(
        "drop view if exists pipeline.snapshots; drop view if exists pipeline.readers;"
        " delete from pipeline.installed_functions; drop table pipeline.snapshot_tables;"
        " drop table pipeline.snapshot_ranges; drop table pipeline.backfills;"
        " alter table pipeline.sources drop column reads_tables, drop column reads_from"
    )
