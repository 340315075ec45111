    -- The next keys of a table in a partition, from the last one on, each with its last event there; from the index.
    select distinct on (e.record_pk) e.record_pk, e.seq
    from {part} e
    where e.source_database_id = %(source)s and e.source_table_oid = %(oid)s
        and (%(before)s::text is null or e.record_pk < %(before)s)
        and not coalesce(e.metadata ? 'retried', false)
    order by e.record_pk desc, e.seq desc
    limit %(limit)s
