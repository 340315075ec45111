
            select from {events} n
            where n.source_database_id = %(source)s and n.source_table_oid = %(oid)s and n.record_pk = p.record_pk
                and n.record_pk between p.record_pk and p.record_pk
                and {after} and not coalesce(n.metadata ? 'retried', false)