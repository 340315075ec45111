-- The server that holds a role but does not know these staged rows, because it has an older version.
with held as (
    select l.pid, l.objid::bigint as key from pg_catalog.pg_locks l
    where l.locktype = 'advisory' and l.granted and l.objsubid = 2 and l.classid = 1346981968
        and l.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
)
select r.server from pipeline.roles r
join held h on h.key = pg_catalog.hashtext('pipeline:' || r.role)::bigint & 4294967295
where r.role = %(role)s and not exists (
    select from held v
    where v.pid = h.pid and v.key = pg_catalog.hashtext('pipeline staged rows ' || %(rows)s)::bigint & 4294967295)
