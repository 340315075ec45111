-- Return the registration for which the position was released; null: none.
select released from pipeline_follower.position where source_database_id = %(source)s and follower = %(follower)s
