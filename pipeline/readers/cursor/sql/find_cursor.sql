-- A consumer, kept from other claims until the transaction ends, and the backend of the process that reads it.
select c.kind, c.state, c.tables, c.actions, c.position, c.reader, c.reader_session, c.reader_since,
    pipeline.log_floor() as floor,
    (
        select l.pid from pg_catalog.pg_locks l
        where l.locktype = 'advisory' and l.granted and l.objsubid = 2
            and l.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
            and l.classid = 1346981969
            and l.objid = (pg_catalog.hashtext(split_part(c.reader_session, ':', 1))::bigint & 4294967295)::oid
    ) as held_by
from pipeline.consumers c
where c.name = %(name)s
for no key update
