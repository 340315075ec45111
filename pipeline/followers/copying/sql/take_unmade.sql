-- A statement is run in this transaction; no row if another session has run it.
delete from pipeline_follower.unmade
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s and place = %(place)s
