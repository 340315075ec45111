-- Store the definition that a table has until its copy is finished.
update pipeline_follower.copies set form = %(form)s
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s and snapshot is null
