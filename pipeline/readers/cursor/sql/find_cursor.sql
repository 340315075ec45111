-- A consumer, locked against other claims until the transaction ends, and the backend of the process that reads it.
select c.kind, c.state, c.tables, c.actions, c.position, c.reader, c.reader_session, c.reader_since,
    pipeline.log_floor() as floor,
    (
        select l.pid from pipeline.advisory_locks l
        where l.key1 = 1346981969 and l.key2 = pg_catalog.hashtext(split_part(c.reader_session, ':', 1))
    ) as held_by
from pipeline.consumers c
where c.name = %(name)s
for no key update
