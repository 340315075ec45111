-- Tables that are rewritten after this are to be copied anew.
update pipeline_follower.position set rewrites_upto = %(upto)s
where source_database_id = %(source)s and follower = %(follower)s and rewrites_upto is null
