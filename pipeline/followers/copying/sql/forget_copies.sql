-- Tables that are followed no longer.
delete from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and table_oid = any(%(oids)s)
