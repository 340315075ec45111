-- With which registration the tables of a follower began.
select registration from pipeline_follower.beginnings
where source_database_id = %(source)s and follower = %(follower)s
