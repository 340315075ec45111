-- What is still to be made once the tables are copied; null: nothing.
update pipeline_follower.beginnings set after_copy = %(after_copy)s
where source_database_id = %(source)s and follower = %(follower)s
