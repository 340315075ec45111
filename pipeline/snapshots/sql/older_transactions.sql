-- Whether every transaction below an xid has ended; if not, one that is still running.
select s.xmin >= %(xid)s as ended, coalesce(
    (select format('pid %%s of %%s (%%s), which began %%s', a.pid, coalesce(a.usename, 'another user'),
            coalesce(nullif(a.application_name, ''), 'no name'), coalesce(date_trunc('second', a.xact_start)::text, 'earlier'))
        from pg_catalog.pg_stat_activity a
        where a.backend_xid is not null and age(a.backend_xid) >= s.age order by age(a.backend_xid) desc limit 1),
    (select format('the prepared transaction "%%s" of %%s', p.gid, date_trunc('second', p.prepared)::text)
        from pg_catalog.pg_prepared_xacts p order by p.prepared limit 1)) as oldest
from (
    select pg_snapshot_xmin(n.snapshot)::text::bigint as xmin,
        (pg_snapshot_xmax(n.snapshot)::text::bigint - %(xid)s)::integer as age
    from (select pg_catalog.pg_current_snapshot() as snapshot) n
) s
