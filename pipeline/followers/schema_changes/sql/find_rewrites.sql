-- The rewrite up to which new copies of tables are finished or requested.
select coalesce(rewrites_upto, 0) from pipeline_follower.position
where source_database_id = %(source)s and follower = %(follower)s
