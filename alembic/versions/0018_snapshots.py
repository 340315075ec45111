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
    'Whether tables that join are read. False: not those that the next look finds; then it is true.';
comment on column pipeline.sources.reads_from is 'Tables that joined after it are read, also by that next look.';
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
    'Every reading of the rows of a table: when it joined, or because somebody asked.';
comment on column pipeline.backfills.table_oid is 'The table; of partitions their root.';
comment on column pipeline.backfills.condition is 'Only rows for which this holds; null: all.';
comment on column pipeline.backfills.reason is 'What it waits for, or why it has failed.';
comment on column pipeline.backfills.after_xid is
    'It reads once every transaction with a smaller xid has ended: it may have written before the table joined.';
comment on column pipeline.backfills.after_lsn is 'Where the source wrote when after_xid was taken.';
comment on column pipeline.backfills.since_seqs is
    'By events table, the last seq before after_xid was taken: transactions from that xid on come after it.';
comment on column pipeline.backfills.files is
    'pg_relation_filenode of each relation that was planned, by oid: in another file rows are elsewhere.';
comment on column pipeline.backfills.by_key is
    'Whether rows have keys that identify them; without, the table is read as one range.';
comment on column pipeline.backfills.rows_added is
    'Rows that became events; the log had something newer of the others.';
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
    'Parts of tables that are still to be read, or whose rows are staged and have not all become events.';
comment on column pipeline.snapshot_ranges.file is
    'pg_relation_filenode when it was planned: another one has other blocks.';
comment on column pipeline.snapshot_ranges.keys is
    'Only rows with these keys, a JSON array of arrays of texts; null: blocks.';
comment on column pipeline.snapshot_ranges.state is
    'held: not to be read now. staged: its rows are durable. placed: its marker has come, which is its place.';
comment on column pipeline.snapshot_ranges.token is
    'Of the marker, a logical message of the transaction that reads it.';
comment on column pipeline.snapshot_ranges.snapshot is 'What was visible to the transaction that read it.';
comment on column pipeline.snapshot_ranges.since_seqs is
    'By events table: what was not visible to snapshot, and commits before the marker, comes after this seq.';
comment on column pipeline.snapshot_ranges.marker_xid is 'Of the transaction that reads it: whether it has committed.';
comment on column pipeline.snapshot_ranges.version is 'The table as it was when it was read, with its fingerprint.';
comment on column pipeline.snapshot_ranges.by_key is 'Whether its rows have keys that identify them.';
comment on column pipeline.snapshot_ranges.left_out is 'Of a range of keys: those that the log had something newer of.';
comment on column pipeline.snapshot_ranges.seen_lsn is
    'The marker had committed before it: a worker that has staged up to here must have placed it.';

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
    'Every table that is or was captured, and from which seq on the log has it whole.';
comment on column pipeline.snapshot_tables.joined is
    'Id in captured_tables of when it last joined; null where that is not recorded.';
comment on column pipeline.snapshot_tables.keyed is 'Whether updates and deletes are captured.';
comment on column pipeline.snapshot_tables.backfill_id is 'The backfill that reads it whole.';
comment on column pipeline.snapshot_tables.reason is 'Why it is not read.';
comment on column pipeline.snapshot_tables.since_seqs is
    'By events table: after this seq its changes are in the log without a gap.';
comment on column pipeline.snapshot_tables.complete_seq is
    'From here on, folding the log gives the whole table; null: not yet.';
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
