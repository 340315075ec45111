-- Sessions that keep a relation from being read.
select l.pid, a.usename::text, a.application_name, a.state
from pg_catalog.pg_locks l left join pg_catalog.pg_stat_activity a on a.pid = l.pid
where l.locktype = 'relation' and l.relation = %(oid)s and l.mode = 'AccessExclusiveLock'
    and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
order by l.granted desc, l.pid limit 1
