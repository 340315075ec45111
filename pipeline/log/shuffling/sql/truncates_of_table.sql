select e.source_table_oid = %(table)s as whole, array[e.source_epoch, e.commit_lsn, e.commit_idx]::bigint[] as place
    from {events} e
    where e.source_database_id = %(source)s and e.record_pk = '' and e.action = 'truncate' and e.commit_lsn is not null
        and e.source_table_oid = any(array(
            select %(table)s::bigint union
            select r.relation_oid from pipeline.relations r where r.source_id = %(source)s and r.table_oid = %(table)s))
    union all
    select t.is_whole, array[t.epoch, t.commit_lsn, t.commit_idx]::bigint[]
    from pipeline.partition_truncates({name}, %(source)s, 0, 0, array[%(table)s]::bigint[]) t
