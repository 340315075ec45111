-- The source's type of this name, as it was when the follower's type was last altered.
select type_oid, parts from pipeline_follower.types
where source_database_id = %(source)s and follower = %(follower)s and type_schema = %(schema)s and type_name = %(name)s
