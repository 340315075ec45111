-- Return in which database this cluster has an advisory lock with this number; no row if it has none. The view of advisory
-- locks exists only in the pipeline database.
select case when l.database = d.oid then 'same database' else 'same cluster' end
from pg_catalog.pg_locks l
join pg_catalog.pg_database d on d.datname = pg_catalog.current_database()
where l.locktype = 'advisory' and l.granted and l.objsubid = 1
    and (l.classid::bigint << 32) | l.objid::bigint = %(key)s::bigint
