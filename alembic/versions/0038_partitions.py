"""Leaves of captured partitioned tables, and which joined or left: rows come and go with them that no event says."""

from __future__ import annotations

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None
additive = True

PARTITIONS = """
create table pipeline.partition_looks (
    source_id uuid not null,
    root_oid bigint not null,
    epoch integer not null,
    after_relation integer not null,
    after_seqs jsonb not null,
    unknown boolean not null,
    primary key (source_id, root_oid)
);
comment on table pipeline.partition_looks is
    'Captured tables whose leaf partitions are in pipeline.partitions, and the epoch of the first check of the'
    ' catalog.';
comment on column pipeline.partition_looks.after_relation is
    'The id in pipeline.relations up to which the stream''s versions of leaf partitions were checked.';
comment on column pipeline.partition_looks.after_seqs is
    'By events table: a truncate of a leaf partition after this seq makes the log incomplete.';
comment on column pipeline.partition_looks.unknown is
    'True if it is unknown which partitions joined and left before that first check.';

create table pipeline.partitions (
    source_id uuid not null,
    epoch integer not null,
    root_oid bigint not null,
    leaf_oid bigint not null,
    leaf_name text not null,
    bounds jsonb,
    attached_by text not null,
    seen_at timestamptz not null default now(),
    primary key (source_id, root_oid, leaf_oid)
);
comment on table pipeline.partitions is
    'The leaf partitions of each captured partitioned table, as the last check of the source''s catalog found them.';
comment on column pipeline.partitions.leaf_name is 'Its schema and name, not quoted.';
comment on column pipeline.partitions.bounds is
    'From the leaf up to the root: strategy, columns and types of the parent''s partition key, and the bound. Null:'
    ' these do not tell which rows the leaf has.';
comment on column pipeline.partitions.attached_by is
    'xmin of the rows of pg_inherits from the leaf up to the root: if they change, the leaf left and joined again.'
    ' Empty: unknown, because an earlier version stored the row.';

create table pipeline.partition_changes (
    id bigint generated always as identity primary key,
    source_id uuid not null,
    epoch integer not null,
    root_oid bigint not null,
    leaf_oid bigint not null,
    leaf_name text not null,
    what text not null check (what in ('attached', 'returned', 'detached', 'dropped', 'truncated')),
    bounds jsonb,
    seen_at timestamptz not null default now(),
    seen_lsn bigint not null,
    events_table text,
    seq bigint,
    backfill_id bigint references pipeline.backfills (id),
    reason text,
    settled_at timestamptz,
    settled_as text check (settled_as in ('read', 'compared', 'kept', 'empty', 'whole')),
    settled_seq bigint,
    check ((settled_at is null) = (settled_as is null))
);
create index partition_changes_root on pipeline.partition_changes (source_id, root_oid, leaf_oid);
create index partition_changes_open on pipeline.partition_changes (source_id, root_oid) where settled_at is null;
comment on table pipeline.partition_changes is
    'Partitions that joined, left or were truncated: the log lacks rows, or has too many, until it is settled.';
comment on column pipeline.partition_changes.what is
    'attached: it joined. returned: it left and joined again. detached, dropped, truncated: the log keeps its rows.';
comment on column pipeline.partition_changes.seen_lsn is
    'The end of the source''s WAL after the check that found it: earlier changes have been sent up to here.';
comment on column pipeline.partition_changes.seq is 'For a truncated partition: the event, in events_table.';
comment on column pipeline.partition_changes.backfill_id is 'The backfill that reads or compares it; null: none does.';
comment on column pipeline.partition_changes.reason is 'Why no backfill reads or compares a partition that joined.';
comment on column pipeline.partition_changes.settled_as is
    'read, compared: the partition by itself. kept: the log stays as it is. empty: it had no rows. whole: read or'
    ' compared with the complete table.';
comment on column pipeline.partition_changes.settled_seq is
    'The newest seq of the table''s events when it was settled: from there on, the log has the rows that the'
    ' partition had.';

alter table pipeline.snapshot_tables add column keeps_partitions boolean not null default false;
comment on column pipeline.snapshot_tables.keeps_partitions is
    'True if rows of partitions that leave stay in the log, without a warning.';
alter table pipeline.backfills add column relations bigint[], add column bounds jsonb;
comment on column pipeline.backfills.relations is
    'For a partitioned table: only these leaf partitions are read; null: all.';
comment on column pipeline.backfills.bounds is
    'For a comparison: only keys within one of these bounds, each as in pipeline.partitions; null: all.';
"""

CAPTURED = """
insert into pipeline.partition_looks (source_id, root_oid, epoch, after_relation, after_seqs, unknown)
select t.source_id, t.table_oid, t.epoch,
    coalesce((select max(r.id) from pipeline.relations r where r.source_id = t.source_id), 0),
    (select coalesce(jsonb_object_agg(e.name, coalesce(e.last_seq, 0)), '{}') from pipeline.events_tables e
        where e.source_id = t.source_id),
    false
from pipeline.snapshot_tables t
where t.captured and exists (select from pipeline.captured_tables c
    where c.source_id = t.source_id and c.root_oid = t.table_oid and c.table_oid <> c.root_oid and c.left_at is null);

insert into pipeline.partitions (source_id, epoch, root_oid, leaf_oid, leaf_name, attached_by)
select k.source_id, k.epoch, k.root_oid, c.table_oid, c.table_name, ''
from pipeline.partition_looks k join pipeline.captured_tables c
    on c.source_id = k.source_id and c.root_oid = k.root_oid and c.table_oid <> c.root_oid and c.left_at is null;
"""


def upgrade() -> None:
    """Keep the captured tables, with which the first check of the new version compares what it finds."""
    op.execute(PARTITIONS)
    op.execute(CAPTURED)


def downgrade() -> None:
    """Forget what joined and left; the version before would read the whole table instead of a partition."""
    op.execute(
        "update pipeline.backfills set state = 'cancelled', finished_at = now()"
        " where (relations is not null or bounds is not null) and state in ('waiting', 'reading', 'paused');"
        " update pipeline.segments set state = 'drained' where state = 'full' and id in"
        " (select r.segment_id from pipeline.snapshot_ranges r join pipeline.backfills b on b.id = r.backfill_id"
        " where b.relations is not null or b.bounds is not null);"
        " delete from pipeline.snapshot_ranges r using pipeline.backfills b"
        " where b.id = r.backfill_id and (b.relations is not null or b.bounds is not null);"
        " drop view if exists pipeline.snapshots; delete from pipeline.installed_functions;"
        " alter table pipeline.backfills drop column relations, drop column bounds;"
        " alter table pipeline.snapshot_tables drop column keeps_partitions;"
        " drop table pipeline.partition_changes; drop table pipeline.partitions; drop table pipeline.partition_looks"
    )
