-- For which registration the position was released; null: for none.
select released from pipeline_follower.position where source_database_id = %(source)s and follower = %(follower)s
