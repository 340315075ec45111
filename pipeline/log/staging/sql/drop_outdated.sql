-- Ranges of blocks of a file that a relation is no longer in. What was read of it before is as it was.
delete from pipeline.snapshot_ranges
where backfill_id = %(backfill)s and state in ('planned', 'held', 'reading')
    and file is distinct from (%(files)s::jsonb ->> relation_oid::text)::bigint
