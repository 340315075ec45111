-- Runs whose session is gone did not end by themselves.
update pipeline.export_runs r
set state = 'failed', reason = 'its process ended', finished_at = now()
where state = 'running' and not exists (
    select from pg_locks l
    where l.locktype = 'advisory' and l.objsubid = 2 and l.classid::bigint = %(lock)s and l.objid::bigint = r.id
        and l.database = (select oid from pg_database where datname = current_database())
)
