    -- The truncates of the table, or of a partition of it, that one events table has.
    select true from {events} e
    where e.source_database_id = {source_id} and e.source_table_oid = any({relations}::bigint[]) and e.record_pk = ''
        and e.action = 'truncate' and e.commit_lsn is not null and e.seq > {after} and e.seq <= {upto}
