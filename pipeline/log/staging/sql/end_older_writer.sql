-- End the session of the last writer if it is inside of a transaction, and sessions that are claiming: a frozen session
-- would hold its locks forever.
select a.pid, pg_catalog.pg_terminate_backend(a.pid, 5000)
from pg_catalog.pg_stat_activity a
where a.pid <> pg_catalog.pg_backend_pid() and (
    exists (
        select from pipeline.replication_progress p
        where p.source_id = %(source)s and p.worker = %(worker)s
            and a.pid = p.backend_pid and a.backend_start = p.backend_start and a.state <> 'idle'
    )
    or exists (
        select from pipeline.advisory_locks l
        where l.pid = a.pid
            and l.key = hashtextextended('pipeline claim ' || %(source)s::text || ' ' || %(worker)s::text, 0)
    )
)
