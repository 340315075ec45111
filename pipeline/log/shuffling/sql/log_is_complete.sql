-- Return true if no event after these seqs, by events table, was dropped.
select not exists (
    select from pipeline.retention r
    where r.events_table = any(%(tables)s)
        and r.dropped_below > coalesce((%(complete_seqs)s::jsonb ->> r.events_table)::bigint, 0) + 1)
