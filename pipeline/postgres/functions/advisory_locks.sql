-- The sessions that hold advisory locks. Only this view knows how Postgres shows the keys of the locks.
create or replace view pipeline.advisory_locks as
select l.pid,
    case l.objsubid when 1 then (l.classid::bigint << 32) | l.objid::bigint end as key,
    case l.objsubid when 2 then ((l.classid::bigint << 32) >> 32)::integer end as key1,
    case l.objsubid when 2 then ((l.objid::bigint << 32) >> 32)::integer end as key2
from pg_catalog.pg_locks l
where l.locktype = 'advisory' and l.granted
    and l.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database());

comment on view pipeline.advisory_locks is 'Advisory locks that are held in this database.';
comment on column pipeline.advisory_locks.key is 'The argument of pg_advisory_lock, if it was one number.';
comment on column pipeline.advisory_locks.key1 is 'The first argument of pg_advisory_lock, if there were two.';
