-- What the source's types were when the follower's got their labels or attributes last.
select type_schema, type_name, type_oid, parts from pipeline_follower.types
where source_database_id = %(source)s and follower = %(follower)s
