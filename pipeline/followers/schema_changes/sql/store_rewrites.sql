-- Tables that were rewritten up to there are copied anew, or to be.
update pipeline_follower.position set rewrites_upto = greatest(rewrites_upto, %(upto)s)
where source_database_id = %(source)s and follower = %(follower)s
