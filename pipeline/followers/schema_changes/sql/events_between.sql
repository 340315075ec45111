-- Return true if the log has events of a table between two seqs.
select exists (
    select from (select * from {events} where seq > %(after)s and seq < %(before)s offset 0) e
    where e.source_database_id = %(source)s and e.source_table_oid = %(oid)s
)
