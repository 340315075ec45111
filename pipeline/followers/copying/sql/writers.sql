-- Open transactions that have written to these relations, including prepared ones. `among`: only these transactions.
select l.virtualtransaction as transaction, a.pid, a.usename::text as user_name, a.application_name as application, a.state
from pg_catalog.pg_locks l left join pg_catalog.pg_stat_activity a on a.pid = l.pid
where l.locktype = 'relation' and l.relation = any(%(oids)s::oid[]) and l.granted
    and l.mode in ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
    and l.pid is distinct from pg_catalog.pg_backend_pid()
    and (%(among)s::text[] is null or l.virtualtransaction = any(%(among)s::text[]))
order by l.virtualtransaction
