-- Forget the copies of a follower.
delete from pipeline_follower.copies where source_database_id = %(source)s and follower = %(follower)s
