-- Delete ranges that will not be read, and empty their segments. Ranges that have a place become events, except those of
-- an epoch that has ended.
with gone as (
    delete from pipeline.snapshot_ranges
    where backfill_id = %(backfill)s and (%(ids)s::bigint[] is null or id = any(%(ids)s::bigint[]))
        and (state in ('planned', 'held', 'reading', 'staged') or state = 'placed' and %(placed)s)
    returning segment_id
)
update pipeline.segments set state = 'drained' where id in (select segment_id from gone) and state = 'full'
