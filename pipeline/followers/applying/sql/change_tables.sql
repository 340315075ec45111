-- From this position on other tables follow the log.
update pipeline_follower.position set generation = generation + 1
where source_database_id = %(source)s and follower = %(follower)s
    and source_epoch = %(source_epoch)s and seq = %(seq)s and generation = %(generation)s
