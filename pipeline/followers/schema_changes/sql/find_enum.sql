-- What the source's enum of a name was when the follower's got its labels last.
select type_oid, labels from pipeline_follower.enums
where source_database_id = %(source)s and follower = %(follower)s and type_schema = %(schema)s and type_name = %(name)s
