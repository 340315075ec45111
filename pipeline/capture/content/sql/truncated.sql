    -- Where the table was truncated, as one events table has it.
    (select e.source_epoch, e.commit_lsn, e.commit_idx, e.seq, {source}::smallint as source from {events} e
    where e.source_database_id = {source_id} and e.source_table_oid = {table} and e.record_pk = ''
        and e.action = 'truncate' and e.seq > {after} and e.seq <= {upto}
    order by e.source_epoch desc, e.commit_lsn desc, e.commit_idx desc limit 1)
