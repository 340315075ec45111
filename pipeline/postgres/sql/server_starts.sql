-- True if a server that runs this role boots, or has the lead, and so will hold the role. Servers compete for the lead
-- by a lock whose name says which roles they run.
select exists (
    select from pg_catalog.pg_stat_activity a
    where a.application_name = 'pipeline boot' and a.datname = pg_catalog.current_database()
) or exists (
    select from pg_catalog.pg_locks l
    cross join (values ('pipeline:serve'), ('pipeline:serve ' || %(role)s)) s (name)
    where l.locktype = 'advisory' and l.granted and l.objsubid = 2 and l.classid = 1346981968
        and l.objid::bigint = pg_catalog.hashtext(s.name)::bigint & 4294967295
        and l.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
)
