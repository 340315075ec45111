-- Mark runs whose session has ended without recording it as failed.
update pipeline.export_runs r
set state = 'failed', reason = 'its process ended', finished_at = now()
where state = 'running' and not exists (
    select from pipeline.advisory_locks l where l.key1 = %(lock)s and l.key2 = r.id
)
