-- Store the state of a follower's table, unless the table was deleted from the registry.
update pipeline.follower_tables
set table_schema = %(table_schema)s, table_name = %(table_name)s, state = %(state)s, reason = %(reason)s,
    remedy = %(remedy)s
where follower_id = %(follower)s and table_oid = %(table_oid)s
