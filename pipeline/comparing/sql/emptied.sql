    -- The places in one events table where the table, or all of its partitions in one transaction, was truncated.
    select e.source_epoch, e.commit_lsn, e.commit_idx from {events} e
    where e.source_database_id = {source_id} and e.source_table_oid = {table} and e.record_pk = ''
        and e.action = 'truncate' and e.commit_lsn is not null and e.seq > {after} and e.seq <= {upto}
    union all
    select t.epoch, t.commit_lsn, t.commit_idx
    from pipeline.partition_truncates({name}, {source_id}, {after}, {after}, array[{table}]::bigint[]) t
    where t.is_whole and t.seq <= {upto}
