select e.source_table_oid as oid, array[e.source_epoch, e.commit_lsn, e.commit_idx]::bigint[] as place
    from {events} e
    where e.source_database_id = %(source)s and e.record_pk = '' and e.action = 'truncate' and e.commit_lsn is not null
        and e.source_table_oid = any(array(
            select %(table)s::bigint union
            select r.relation_oid from pipeline.relations r where r.source_id = %(source)s and r.table_oid = %(table)s))
