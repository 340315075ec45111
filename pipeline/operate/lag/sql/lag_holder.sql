-- The oldest transaction at the source that has written, also a prepared one: a slot keeps the WAL since it began.
select o.pid, o.prepared, o.application, o.username, o.database, o.state, o.began,
    extract(epoch from clock_timestamp() - o.began)::float8 as seconds
from (
    select a.pid, null::text as prepared, a.application_name as application, a.usename::text as username,
        a.datname::text as database, a.state, a.xact_start as began, age(a.backend_xid) as xids
    from pg_stat_activity a
    where a.backend_xid is not null and a.xact_start is not null
    union all
    select null, p.gid, null, p.owner::text, p.database::text, 'prepared', p.prepared, age(p.transaction)
    from pg_prepared_xacts p
) o
order by o.xids desc, o.began
limit 1
