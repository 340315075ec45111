            -- The range excludes no event: it keeps the planner from reading the table backwards by seq.
            (select e.source_epoch, e.commit_lsn, e.commit_idx, e.record, e.exact, place.lsn as since_lsn,
                place.idx as since_idx,
                e.action in ('insert', 'update', 'read') and not coalesce(e.metadata ? 'parked', false) as is_row
            from {events} e
            where e.source_database_id = %(source)s and e.source_table_oid = place.oid and e.record_pk = w.known_pk
                and e.record_pk between w.known_pk and w.known_pk{before}
                and e.commit_lsn is not null and not coalesce(e.metadata ? 'retried', false)
            order by e.seq desc limit 1)
