-- A run has ended.
update pipeline.export_runs set state = %(state)s, reason = %(reason)s, finished_at = now() where id = %(run)s
