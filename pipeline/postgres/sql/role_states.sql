-- Every role, and whether a session holds its lock now. Servers run this before they migrate, when
-- pipeline.advisory_locks may not exist.
select r.role, r.server, r.pid, r.state, r.reason, r.since,
    exists (
        select from pg_catalog.pg_locks l
        where l.locktype = 'advisory' and l.granted and l.objsubid = 2 and l.classid = 1346981968
            and l.objid::bigint = pg_catalog.hashtext('pipeline:' || r.role)::bigint & 4294967295
            and l.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
    ) as held
from pipeline.roles r
order by r.role
