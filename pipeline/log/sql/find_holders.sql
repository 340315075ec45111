-- List sessions that hold a lock on a table or on one of its partitions, the oldest transaction first.
select distinct a.pid, a.usename::text as user_name, a.application_name as application, a.xact_start as since
from pg_locks l
join pg_stat_activity a on a.pid = l.pid
where l.granted and l.locktype = 'relation' and l.pid <> pg_backend_pid()
    and l.database = (select oid from pg_database where datname = current_database())
    and l.relation in (
        select %(oid)s::oid union all select t.relid from pg_partition_tree(%(oid)s::oid::regclass) t)
order by a.xact_start
