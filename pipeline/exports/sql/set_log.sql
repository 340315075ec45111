-- Record where a run's log is.
update pipeline.export_runs set log = %(log)s where id = %(run)s
