-- A table is divided as the source's up to this change of partitions. Kept: those of them whose rows stay in it.
insert into pipeline_follower.partitions as p (source_database_id, follower, table_oid, looked_upto, kept)
values (%(source)s, %(follower)s, %(oid)s, %(upto)s, %(kept)s)
on conflict (source_database_id, follower, table_oid) do update
    set looked_upto = greatest(p.looked_upto, excluded.looked_upto), kept = p.kept || excluded.kept
