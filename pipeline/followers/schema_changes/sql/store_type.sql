-- Store that the follower's type of this name has these labels or attributes of the source's type.
insert into pipeline_follower.types (source_database_id, follower, type_schema, type_name, type_oid, parts)
values (%(source)s, %(follower)s, %(schema)s, %(name)s, %(oid)s, %(parts)s)
on conflict (source_database_id, follower, type_schema, type_name) do update
    set type_oid = excluded.type_oid, parts = excluded.parts
