-- Find the session with the oldest transaction that prevents the partition from being dropped: it has locked the partition
-- or its table, or its snapshot is older than the drop.
select a.pid, a.usename::text as user_name, a.application_name as application, a.xact_start as since,
    a.xact_start < r.dropping_since as is_older
from pipeline.retention r
cross join pg_stat_activity a
where r.events_table = %(table)s and r.dropping is not null and a.datname = current_database()
    and a.pid <> pg_backend_pid() and a.backend_type <> 'autovacuum worker'
    and a.xact_start < clock_timestamp() - interval '0.5 seconds'
    and (a.backend_xmin is not null and a.xact_start < r.dropping_since or exists (
        select from pg_locks l
        where l.pid = a.pid and l.granted and l.locktype = 'relation'
            and l.database = (select oid from pg_database where datname = current_database())
            and (l.relation = r.dropping
                or l.relation = %(name)s::regclass and a.xact_start < r.dropping_since)
    ))
order by a.xact_start
limit 1
