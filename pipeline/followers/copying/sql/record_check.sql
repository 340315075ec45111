-- A check that was made with a table, before it is taken off; what is known of it stays.
insert into pipeline_follower.checks (source_database_id, follower, table_oid, relation, name, is_valid)
values (%(source)s, %(follower)s, %(oid)s, %(relation)s::bigint::oid, %(name)s, %(is_valid)s)
on conflict (source_database_id, follower, relation, name) do nothing
