    -- The row that each change adds to a table, and the row that it removes; null: all rows.
    select e.source_epoch, e.commit_lsn, e.commit_idx, e.xid, v.row, v.delta
    from {events} e
    cross join lateral (
        select e.record as row, 1 as delta where e.action in ('insert', 'update', 'read')
        union all
        select e.record || coalesce(e.changes, '{{}}'), -1 where e.action in ('update', 'delete')
        union all
        select null, null where e.action = 'truncate'
    ) v
    where e.source_database_id = %(source)s and e.source_table_oid = %(table)s and e.record_pk = ''
        and not coalesce(e.metadata ? 'parked', false)
