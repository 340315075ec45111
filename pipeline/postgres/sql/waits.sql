-- Sessions that wait for a lock, and the holders of the lock: sessions, or prepared transactions, which have no pid.
-- `seconds`: the seconds that the statement has run. A role may not see everything of sessions of other roles.
select w.pid, w.application, w.seconds, w.relation, h.pid as holder, coalesce(h.usename, p.owner)::text as username,
    nullif(h.application_name, '') as program, h.state, p.gid as prepared,
    extract(epoch from pg_catalog.clock_timestamp() - coalesce(h.xact_start, p.prepared))::float8 as held_seconds
from (
    select me.pid, me.application_name as application, l as lock,
        extract(epoch from pg_catalog.clock_timestamp() - least(me.query_start, l.waitstart))::float8 as seconds,
        case when l.database = me.datid then l.relation::pg_catalog.regclass::text end as relation,
        pg_catalog.pg_blocking_pids(me.pid) as blocking
    from pg_catalog.pg_locks l join pg_catalog.pg_stat_activity me on me.pid = l.pid
    where l.pid = any(%(pids)s) and not l.granted
) w
cross join lateral (select distinct b.pid from unnest(case when w.blocking = '{}' then '{0}' else w.blocking end) b(pid)) b
left join pg_catalog.pg_stat_activity h on h.pid = b.pid
left join pg_catalog.pg_prepared_xacts p on b.pid = 0 and (
    p.transaction = (w.lock).transactionid
    or exists (
        select from pg_catalog.pg_locks k join pg_catalog.pg_locks x using (virtualtransaction)
        where k.pid is null and x.pid is null and x.transactionid = p.transaction
            and (k.locktype, k.database, k.relation) is not distinct from
                ((w.lock).locktype, (w.lock).database, (w.lock).relation)
    )
)
order by w.pid, h.xact_start, p.prepared
