    -- The changes of the rows of a table that one events table has.
    select {source}::smallint as source, e.seq, e.source_epoch, e.commit_lsn, e.commit_idx, e.record_pk, false as given_up,
        e.xid, e.action <> 'delete' as live, e.record, e.exact, e.unchanged_columns, e.metadata
    from {events} e
    where e.source_database_id = {source_id} and e.source_table_oid = {table} and e.seq > {after} and e.seq <= {upto}
        and e.action in ('insert', 'update', 'delete', 'read') and {counts}
