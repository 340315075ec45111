-- The form of the source's that a table has until its copy is made, where that is known.
select form from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s and snapshot is null
