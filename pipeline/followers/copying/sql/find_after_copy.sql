-- What is still to be made once the tables are copied; whoever is at it is waited for.
select after_copy from pipeline_follower.beginnings
where source_database_id = %(source)s and follower = %(follower)s
for update
