-- Store a table of a follower, or the new names of a table that is stored already.
insert into pipeline.follower_tables (follower_id, table_oid, table_schema, table_name)
values (%(follower)s, %(table_oid)s, %(table_schema)s, %(table_name)s)
on conflict (follower_id, table_oid) do update
    set table_schema = excluded.table_schema, table_name = excluded.table_name
