-- End the last writer's session when it is inside of a transaction: a frozen one would hold its locks for ever.
select a.pid, pg_catalog.pg_terminate_backend(a.pid, 5000)
from pipeline.replication_progress p
join pg_catalog.pg_stat_activity a on a.pid = p.backend_pid and a.backend_start = p.backend_start
where p.source_id = %(source)s and p.worker = %(worker)s
    and a.pid <> pg_catalog.pg_backend_pid() and a.state <> 'idle'
