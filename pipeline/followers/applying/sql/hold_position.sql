-- Nobody else applies until the end of the transaction; no row where the position is another.
select true from pipeline_follower.position
where source_database_id = %(source)s and follower = %(follower)s and source_epoch = %(source_epoch)s and seq = %(seq)s
for update
