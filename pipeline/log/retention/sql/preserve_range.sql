    -- The keys of a table among some events, each with its last one.
    select distinct on (e.record_pk) e.record_pk, e.seq
    from {part} e
    where e.source_database_id = %(source)s and e.source_table_oid = %(oid)s and e.seq between %(first)s and %(upto)s
        and not coalesce(e.metadata ? 'retried', false)
    order by e.record_pk, e.seq desc
