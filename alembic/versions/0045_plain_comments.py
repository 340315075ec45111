"""Comments of tables and columns in plain English; nothing else changes."""

from __future__ import annotations

from alembic import op

revision = "0045"
down_revision = "0041"
branch_labels = None
depends_on = None
additive = True

_COMMENTS = """
comment on table pipeline.consumer_progress is
    'The seq up to which the log is in consumer_records. The shuffler skips rows that an administrative function'
    ' locks.';
comment on table public.consumer_records is
    'Items that a records consumer has not acknowledged: one per row of a table, its last change; refers to the'
    ' log.';
comment on column public.consumer_records.unkeyed is
    'seq if each event is a separate item, else 0; negative in a dead letter, behind which no item waits.';
comment on column public.consumer_records.left_pk is
    'If each event is an item: the previous key of the row, if the event changed it. The item waits behind items of'
    ' that key, too.';
comment on column public.consumer_records.is_alone is
    'If each event is an item: true if the event belongs to no row, so the item waits behind no other. Null: the'
    ' consumer collapses.';
comment on column pipeline.consumer_progress.consumer_id is
    'The value of pipeline.progress_id, so that servers of earlier versions find only consumers that they can serve.';
comment on column public.consumer_records.record is
    'Set only for a key that the row has left, because its record is not that of the event.';
comment on column public.consumer_records.visible_at is
    'When a delivery expires, or the delay of a nack ends; null if the item waits for nothing.';
comment on table pipeline.consumer_touches is
    'Changes and items that wait because an open transaction of a client has locked an item. The shuffler checks'
    ' them again until it ends.';
comment on column pipeline.wal_written.spilled_bytes is
    'Bytes that decoding for the slot had spilled to the disk of the source by then.';
comment on table pipeline.worker_load is
    'Reasons for which the worker waited in the last seconds; written only while rows wait to be staged or moved.';
comment on column pipeline.worker_load.sending is 'Share of the samples in which the walsender could not send more.';
comment on column pipeline.routes.first_seqs is 'By events table, the seq below which older routes have decided.';
comment on table pipeline.retention is
    'How far retention has dropped an events table: every seq below dropped_below is gone, or will be at once.';
comment on column pipeline.retention.dropping is
    'The partition that is being dropped; after a crash, the next server continues with it.';
comment on table pipeline.known_rows is
    'Values of rows whose last event retention has dropped: a later update may leave them out, since they are'
    ' TOASTed.';
comment on column pipeline.dead_letters.seq is
    'seq of the event that holds its place; retried_seq: of the event that has its values.';
comment on column pipeline.rewrites.version is 'Distinguishes the rewrite from others of these columns.';
comment on column pipeline.sources.published is
    'The content of the publications in use at the last check: a change that narrows it is a gap.';
comment on column pipeline.source_stops.requested_at is 'When a user asked to skip it.';
comment on column public.wal_events.previous_pk is
    'record_pk before an update that changed the key; null if it is the same.';
comment on column pipeline.catchup_parts.until_lsn is 'Null: the newest part, which has no end yet.';
"""
"""The migrations that made these objects have the same texts, so a new database has them from the start."""


def upgrade() -> None:
    """Replace the comments."""
    op.execute(_COMMENTS)


def downgrade() -> None:
    """Keep the comments, which the previous version does not read."""
