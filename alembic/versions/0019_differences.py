"""Backfills that compare a table with the log, and append only what differs."""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None
additive = True

DIFFERENCES = """
alter table pipeline.backfills drop constraint backfills_kind_check,
    add constraint backfills_kind_check check (kind in ('initial', 'asked', 'differences')),
    add column gap_after bigint, add column gap_until bigint, add column told_seqs jsonb, add column floor_seqs jsonb;
comment on column pipeline.backfills.kind is
    'initial: its table has joined. asked: somebody asked. differences: only what differs from the log is appended.';
comment on column pipeline.backfills.gap_after is
    'The log lacks changes that were made between here and gap_until, of the source''s WAL; null: no gap is known.';
comment on column pipeline.backfills.told_seqs is
    'See snapshot_tables, as it was when this began; null: the log did not say which rows the table had.';
comment on column pipeline.backfills.floor_seqs is
    'By events table, up to which seq retention had dropped events when the comparison was planned.';

alter table pipeline.snapshot_ranges
    add column compares boolean not null default false, add column differences jsonb, add column departed jsonb;
comment on column pipeline.snapshot_ranges.compares is
    'Nothing is read: the table is compared with the log, and ranges of keys that may differ are planned.';
comment on column pipeline.snapshot_ranges.differences is
    'Of its rows only those become events that the log does not have so: metadata of those events, told_seqs of the'
    ' backfill, and void_epoch and void_lsn of its table; null: all rows do.';
comment on column pipeline.snapshot_ranges.departed is
    'Where rows have left the keys of this range by an update that is in the log up to these seqs, by events table.';

alter table pipeline.snapshot_tables
    add column told_seqs jsonb, add column reread text, add column settled_lsn bigint, add column since_lsn bigint,
    add column key text, add column members bigint[], add column void_epoch integer, add column void_lsn bigint;
update pipeline.snapshot_tables set told_seqs = since_seqs where complete_seq is not null;
comment on column pipeline.snapshot_tables.told_seqs is
    'By events table: after this seq the log has all rows that the table ever had, but for what happened in gaps; null:'
    ' it never had all.';
comment on column pipeline.snapshot_tables.reread is
    'Kind of the backfill that is to be started once none of the table is under way.';
comment on column pipeline.snapshot_tables.settled_lsn is
    'Rows that this epoch has no event of were at this LSN of the source as the epochs before have them'
    '; null: not known.';

comment on column pipeline.snapshot_tables.since_lsn is
    'Where the source wrote when it joined, or got this key: a truncate before it does not make it whole.';
comment on column pipeline.snapshot_tables.key is
    'Numbers of the columns by which its rows are known, of each kind of partition; null: not known.';
comment on column pipeline.snapshot_tables.members is
    'Memberships of it in publications of its updates: another says that some were not captured; null: not known.';
comment on column pipeline.snapshot_tables.void_lsn is
    'Up to here, in void_epoch, events know its rows by another key, or by none; null: none does.';
alter table pipeline.captured_tables add column root_oid bigint;
comment on column pipeline.captured_tables.root_oid is
    'The table that had its rows when it joined: itself, or what it was a partition of; null: not known.';

alter table pipeline.sources add column rereads_epoch integer;
comment on column pipeline.sources.rereads_epoch is
    'The tables that are captured when this epoch begins are compared with the log; null: they are, or need not be.';
"""


def upgrade() -> None:
    """The tables of backfills are small."""
    op.execute(DIFFERENCES)


def downgrade() -> None:
    """Comparisons become what the version before knows, an ordinary reading; those under way end."""
    op.execute(
        "update pipeline.backfills set state = 'cancelled', finished_at = now()"
        " where kind = 'differences' and state in ('waiting', 'reading', 'paused');"
        " update pipeline.segments set state = 'drained' where state = 'full' and id in"
        " (select segment_id from pipeline.snapshot_ranges where differences is not null);"
        " delete from pipeline.snapshot_ranges where compares or differences is not null;"
        " update pipeline.backfills set kind = 'asked' where kind = 'differences';"
        " drop view if exists pipeline.snapshots; drop view if exists pipeline.readers;"
        " delete from pipeline.installed_functions;"
        " alter table pipeline.backfills drop constraint backfills_kind_check,"
        " add constraint backfills_kind_check check (kind in ('initial', 'asked')),"
        " drop column gap_after, drop column gap_until, drop column told_seqs, drop column floor_seqs;"
        " alter table pipeline.snapshot_ranges drop column compares, drop column differences, drop column departed;"
        " alter table pipeline.snapshot_tables drop column told_seqs, drop column reread,"
        " drop column settled_lsn, drop column since_lsn, drop column key, drop column members,"
        " drop column void_epoch, drop column void_lsn;"
        " alter table pipeline.captured_tables drop column root_oid;"
        " alter table pipeline.sources drop column rereads_epoch"
    )
