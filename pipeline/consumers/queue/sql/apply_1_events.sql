-- Step 1 of applying the log: read the events after one seq up to another that the consumer's filter matches.
clock as materialized (
    select clock_timestamp() as now
), seen as materialized (
    select e.seq, e.source_database_id, e.source_epoch, e.commit_lsn, e.commit_idx, e.action,
        e.source_table_oid, e.record_pk, e.record_pk <> '' as has_pk,
        case when e.action = 'update' then e.changes end as changes,
        ({group_of_record}) as group_id,
        root.table_oid as root_oid
    from {events} e
    left join lateral (
        -- A truncate names the leaf of a partitioned table; its rows are the root's.
        select r.table_oid, r.table_schema, r.table_name from pipeline.relations r
        where e.action = 'truncate' and r.source_id = e.source_database_id and r.epoch = e.source_epoch
            and r.relation_oid = e.source_table_oid
        order by r.id desc limit 1
    ) root on true
    where e.seq > %(after)s and e.seq <= %(upto)s
        and (%(patterns)s::text[] = '{{}}' or e.source_table_schema || '.' || e.source_table_name like any (%(patterns)s)
            or root.table_schema || '.' || root.table_name like any (%(patterns)s))
        and (%(actions)s::text[] = '{{}}' or e.action = any (%(actions)s)
            or e.action = 'update' and e.changes is not null and 'delete' = any (%(actions)s))
        -- Left out: an event in the place of a dead letter, which does not contain the row, and an event that was
        -- retried after a newer change of its row.
        and (e.metadata is null or not (
            e.metadata ? 'parked' and e.action in ('insert', 'update', 'read') or e.metadata ? 'outdated'))
)
