-- The follower's enum of a name has these labels of the source's.
insert into pipeline_follower.enums (source_database_id, follower, type_schema, type_name, type_oid, labels)
values (%(source)s, %(follower)s, %(schema)s, %(name)s, %(oid)s, %(labels)s)
on conflict (source_database_id, follower, type_schema, type_name) do update
    set type_oid = excluded.type_oid, labels = excluded.labels
