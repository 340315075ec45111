-- Up to which rewrite tables are copied anew, or to be.
select coalesce(rewrites_upto, 0) from pipeline_follower.position
where source_database_id = %(source)s and follower = %(follower)s
