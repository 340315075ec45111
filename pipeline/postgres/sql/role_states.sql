-- Every role, and whether a session holds its lock now.
select r.role, r.server, r.pid, r.state, r.reason, r.since,
    exists (
        select from pipeline.advisory_locks l
        where l.key1 = 1346981968 and l.key2 = pg_catalog.hashtext('pipeline:' || r.role)
    ) as held
from pipeline.roles r
order by r.role
