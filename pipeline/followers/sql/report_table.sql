-- Store the state of a follower's table.
insert into pipeline.follower_tables (follower_id, table_oid, table_schema, table_name, state, reason, remedy)
values (%(follower)s, %(table_oid)s, %(table_schema)s, %(table_name)s, %(state)s, %(reason)s, %(remedy)s)
on conflict (follower_id, table_oid) do update
    set table_schema = excluded.table_schema, table_name = excluded.table_name, state = excluded.state,
        reason = excluded.reason, remedy = excluded.remedy
