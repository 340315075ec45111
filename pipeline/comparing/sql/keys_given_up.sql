    -- The keys that rows have left by an update: the log has no separate event under such a key.
    select {source}::smallint as source, e.seq, e.source_epoch, e.commit_lsn, e.commit_idx, old.record_pk, true as given_up,
        e.xid, false as live, old.record, null::jsonb as exact, null::text[] as unchanged_columns, null::jsonb as metadata
    from {events} e cross join lateral ({key}) old
    where e.source_database_id = {source_id} and e.source_table_oid = {table} and e.seq > {after} and e.seq <= {upto}
        and e.action = 'update' and e.changes ?| {key_columns} and {counts}
