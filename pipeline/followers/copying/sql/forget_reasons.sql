-- A table has other rows: whether they violate its checks is asked again.
update pipeline_follower.checks set reason = null
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s
