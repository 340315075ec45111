-- Store that a table has followed changes of partitions up to this one. `kept`: changes by which a partition left whose
-- rows stay in the table.
insert into pipeline_follower.partitions as p (source_database_id, follower, table_oid, looked_upto, kept)
values (%(source)s, %(follower)s, %(oid)s, %(upto)s, %(kept)s)
on conflict (source_database_id, follower, table_oid) do update
    set looked_upto = greatest(p.looked_upto, excluded.looked_upto), kept = p.kept || excluded.kept
