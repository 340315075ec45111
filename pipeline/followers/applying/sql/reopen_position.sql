-- A later registration goes on from where an earlier one was released.
update pipeline_follower.position set released = null
where source_database_id = %(source)s and follower = %(follower)s and released < %(registration)s
