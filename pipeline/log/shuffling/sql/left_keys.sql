select old.record_pk, array[e.source_epoch, e.commit_lsn, e.commit_idx]::bigint[] as place
    from (
        select n.source_epoch, n.commit_lsn, n.commit_idx, n.record || n.changes as was
        from {events} n
        where n.seq > coalesce((%(departed)s::jsonb -> 'seqs' ->> {name})::bigint, 0) and n.source_database_id = %(source)s
            and n.source_table_oid = %(table)s and n.action = 'update' and n.commit_lsn is not null
            and n.changes ?| (select key_columns from form) and not coalesce(n.metadata ? 'outdated', false)
        offset 0
    ) e cross join form cross join lateral ({key}) old
