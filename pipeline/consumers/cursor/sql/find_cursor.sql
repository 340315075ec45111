-- A consumer, locked against other claims until the transaction ends, and the backend of the process that reads it.
select c.kind, c.state, c.tables, c.actions, c.position, c.reader, c.reader_session, c.reader_since,
    c.events_table, pipeline.log_floor(c.events_table) as floor,
    to_regclass(pipeline.events_relation(c.events_table)) is not null as is_there,
    -- To take it, the transaction must know that there are other tables than the default one.
    set_config('pipeline.reads_events_tables', 'on', true) as aware,
    (
        select l.pid from pipeline.advisory_locks l
        where l.key1 = 1346981969 and l.key2 = pg_catalog.hashtext(split_part(c.reader_session, ':', 1))
    ) as held_by
from pipeline.consumers c
where c.name = %(name)s
for no key update
