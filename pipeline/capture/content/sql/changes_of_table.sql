    -- What the log says of the rows of a table in one events table; a key that an update gives up has a row of its own.
    select {source}::smallint as source, e.seq, e.source_epoch, e.commit_lsn, e.commit_idx, e.record_pk, false as given_up,
        e.xid, e.action <> 'delete' as live, e.record, e.exact, e.unchanged_columns, e.metadata
    from {events} e
    where e.source_database_id = {source_id} and e.source_table_oid = {table} and e.seq > {after} and e.seq <= {upto}
        and e.action in ('insert', 'update', 'delete', 'read') and {counts}
    union all
    select {source}::smallint, e.seq, e.source_epoch, e.commit_lsn, e.commit_idx, old.record_pk, true,
        e.xid, false, old.record, null, null, null
    from {events} e cross join lateral ({key}) old
    where e.source_database_id = {source_id} and e.source_table_oid = {table} and e.seq > {after} and e.seq <= {upto}
        and e.action = 'update' and e.changes ?| {key_columns} and {counts}
