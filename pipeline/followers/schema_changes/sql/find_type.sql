-- What the source's type of a name was when the follower's got its labels or attributes last.
select type_oid, parts from pipeline_follower.types
where source_database_id = %(source)s and follower = %(follower)s and type_schema = %(schema)s and type_name = %(name)s
