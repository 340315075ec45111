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
    'initial: the table joined a publication. asked: a user requested it. differences: only rows that differ from'
    ' the log are appended.';
comment on column pipeline.backfills.gap_after is
    'The log lacks changes that the source made between this LSN and gap_until; null: no gap is known.';
comment on column pipeline.backfills.told_seqs is
    'The value of snapshot_tables when this began; null: the log did not say which rows the table had.';
comment on column pipeline.backfills.floor_seqs is
    'By events table, the seq up to which retention had dropped events when the comparison was planned.';

alter table pipeline.snapshot_ranges
    add column compares boolean not null default false, add column differences jsonb, add column departed jsonb;
comment on column pipeline.snapshot_ranges.compares is
    'True if no rows are read: the table is compared with the log, and ranges of keys that may differ are planned.';
comment on column pipeline.snapshot_ranges.differences is
    'Set if only rows that differ from the log become events: metadata of those events, told_seqs of the backfill,'
    ' and void_epoch and void_lsn of its table. Null: all rows become events.';
comment on column pipeline.snapshot_ranges.departed is
    'Where rows have gone that left the keys of this range by updates; these are in the log up to these seqs, by'
    ' events table.';

alter table pipeline.snapshot_tables
    add column told_seqs jsonb, add column reread text, add column settled_lsn bigint, add column since_lsn bigint,
    add column key text, add column members bigint[], add column void_epoch integer, add column void_lsn bigint;
update pipeline.snapshot_tables set told_seqs = since_seqs where complete_seq is not null;
comment on column pipeline.snapshot_tables.told_seqs is
    'By events table: after this seq the log has all rows that the table ever had, except changes in gaps. Null: it'
    ' never had all of them.';
comment on column pipeline.snapshot_tables.reread is
    'The kind of the backfill that starts once no other backfill of the table runs.';
comment on column pipeline.snapshot_tables.settled_lsn is
    'At this LSN of the source, rows without an event in this epoch were as the earlier epochs have them; null:'
    ' unknown.';

comment on column pipeline.snapshot_tables.since_lsn is
    'The end of the source''s WAL when the table joined, or got this key: an earlier truncate does not make the log'
    ' complete.';
comment on column pipeline.snapshot_tables.key is
    'Numbers of the columns that identify its rows, for each kind of partition; null: unknown.';
comment on column pipeline.snapshot_tables.members is
    'The catalog rows by which publications publish its updates: if they change, some updates were not captured.'
    ' Null: unknown.';
comment on column pipeline.snapshot_tables.void_lsn is
    'Up to this LSN, in void_epoch, events identify its rows by another key, or by none; null: no event does.';
alter table pipeline.captured_tables add column root_oid bigint;
comment on column pipeline.captured_tables.root_oid is
    'The root of its partitions when it joined, or the table itself; null: unknown.';

alter table pipeline.sources add column rereads_epoch integer;
comment on column pipeline.sources.rereads_epoch is
    'The epoch at whose beginning the captured tables must be compared with the log; null: done, or not needed.';
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
