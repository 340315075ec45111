-- Runs whose session is gone did not end by themselves.
update pipeline.export_runs r
set state = 'failed', reason = 'its process ended', finished_at = now()
where state = 'running' and not exists (
    select from pipeline.advisory_locks l where l.key1 = %(lock)s and l.key2 = r.id
)
