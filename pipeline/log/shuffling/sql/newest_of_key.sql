(select e.seq, array[e.source_epoch, coalesce(e.commit_lsn, 0), coalesce(e.commit_idx, 0)]::bigint[] as place, e.action,
            e.record, e.exact, e.unchanged_columns, coalesce(e.metadata ? 'parked', false) as parked
        from {events} e
        -- The range excludes no event: it keeps the planner from reading the table backwards by seq.
        where e.source_database_id = %(source)s and e.source_table_oid = %(table)s and e.record_pk = s.record_pk
            and e.record_pk between s.record_pk and s.record_pk and not coalesce(e.metadata ? 'outdated', false)
            -- Events older than the table's key belong to other rows.
            and not coalesce((e.source_epoch, e.commit_lsn) <= (%(void_epoch)s::integer, %(void_lsn)s::bigint), false)
        order by e.seq desc limit 1)
