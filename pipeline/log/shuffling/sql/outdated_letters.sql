-- Find dead letters whose row has a newer change in the log, or has left its key, or whose table was emptied or created
-- again; also if retention has dropped the events that would show this, or another epoch has begun. An event in the place
-- of a dead letter is no newer change, unless it is a delete.
with letters as materialized (
    select d.*, r.key_columns, coalesce(root.dropped_below, 1) > d.seq or d.epoch < p.epoch as untold,
        exists (
            select from pipeline.relations n
            where n.source_id = d.source_id and n.epoch = d.epoch and n.id > d.relation_id
                and n.table_schema = r.table_schema and n.table_name = r.table_name and n.table_oid <> r.table_oid
        ) as made_anew
    from pipeline.dead_letters d
    join pipeline.relations r on r.id = d.relation_id
    join pipeline.shuffle_progress p on p.source_id = d.source_id
    left join pipeline.retention root on root.events_table = %(table)s
    where d.id = any (%(ids)s)
), left_keys as materialized (
    select n.source_database_id, n.source_epoch, n.commit_lsn, n.commit_idx, n.source_table_oid, n.changes,
        n.record || n.changes as was
    from {events} n
    where n.seq > (select min(seq) from letters) and n.action = 'update' and n.changes is not null
        and n.source_table_oid = any (array(select table_oid from letters where record_pk <> ''))
        and n.changes ?| array(select distinct k from letters, unnest(key_columns) k)
)
select l.id from letters l
where l.record_pk <> '' and (
    l.untold or l.made_anew
    or exists (
        select from {events} n
        where n.source_database_id = l.source_id and n.source_table_oid = l.table_oid
            and n.record_pk in (l.record_pk, '') and n.seq > l.seq
            and (n.source_epoch, n.commit_lsn, n.commit_idx) > (l.epoch, l.commit_lsn, l.commit_idx)
            and (n.record_pk <> '' or n.action = 'truncate')
            and (n.action = 'delete' or not coalesce(n.metadata ? 'parked', false)))
    or exists (
        select from pipeline.partition_truncates(%(table)s, l.source_id, l.seq, l.seq, array[l.table_oid]) t
        where t.is_whole)
    or exists (
        select from left_keys k
        where k.source_database_id = l.source_id and k.source_table_oid = l.table_oid and k.changes ?| l.key_columns
            and (k.source_epoch, k.commit_lsn, k.commit_idx) > (l.epoch, l.commit_lsn, l.commit_idx)
            and l.record_pk = case
                when cardinality(l.key_columns) = 1 then k.was ->> l.key_columns[1]
                else (select '[' || string_agg((k.was -> c)::text, ',' order by o) || ']'
                    from unnest(l.key_columns) with ordinality u (c, o)) end))
