and not exists (
    select from {events} n
    where n.source_database_id = e.source_database_id and n.source_table_oid = e.source_table_oid
        and n.record_pk = e.record_pk
        and (n.source_epoch, n.commit_lsn, n.commit_idx) > (e.source_epoch, e.commit_lsn, e.commit_idx))
