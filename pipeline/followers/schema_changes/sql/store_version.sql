-- Store a table's name, and the place of the version that it has reached; of the stored and the new one, the later stays.
insert into pipeline_follower.forms as f
    (source_database_id, follower, table_oid, table_schema, table_name, source_epoch, lsn, idx)
values (%(source)s, %(follower)s, %(oid)s, %(schema)s, %(name)s, %(epoch)s, %(lsn)s, %(idx)s)
on conflict (source_database_id, follower, table_oid) do update
    set table_schema = excluded.table_schema, table_name = excluded.table_name, changed_at = now(),
        (source_epoch, lsn, idx) = (
            select x.source_epoch, x.lsn, x.idx
            from (values (f.source_epoch, f.lsn, f.idx), (excluded.source_epoch, excluded.lsn, excluded.idx))
                as x (source_epoch, lsn, idx)
            order by x.source_epoch desc, x.lsn desc, x.idx desc limit 1)
