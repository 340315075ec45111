-- Record that the follower has the rows of a table as of this snapshot, and the log applied to them up to the position;
-- unless another copy was requested in the meantime. For a table that the source has dropped, the definition stays stored,
-- because another table may replace it.
update pipeline_follower.copies
set source_epoch = %(source_epoch)s, snapshot = %(snapshot)s, lsn = %(lsn)s,
    form = coalesce(%(form)s::jsonb,
        case jsonb_typeof(form) when 'array' then jsonb_build_object('given_up', form) else form end),
    rows = %(rows)s,
    copied_at = clock_timestamp(), wanted_seq = null, wanted_at = null, generation = null,
    formed_epoch = case when %(form)s::jsonb is null then formed_epoch end,
    formed_lsn = case when %(form)s::jsonb is null then formed_lsn end, is_first = false
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s
    and wanted_seq is not null and generation = %(generation)s
