-- Return a session that has a lock on one of these tables or partitions, with the oldest transaction.
select pg_catalog.to_regclass(t.name)::text as table, a.pid, a.usename::text as user_name, a.application_name as application, a.state
from unnest(%(names)s::text[]) t (name)
join pg_catalog.pg_locks l on l.relation = pg_catalog.to_regclass(t.name)
    or l.relation in (select relid from pg_catalog.pg_partition_tree(pg_catalog.to_regclass(t.name)))
left join pg_catalog.pg_stat_activity a on a.pid = l.pid
where l.locktype = 'relation' and l.granted and l.pid is distinct from pg_catalog.pg_backend_pid()
    and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
order by a.xact_start, t.name limit 1
