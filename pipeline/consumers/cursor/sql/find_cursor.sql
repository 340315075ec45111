-- Return a consumer, locked against other claims until the transaction ends, with the backend that reads it.
select c.kind, c.state, c.tables, c.actions, c.position, c.reader, c.reader_session, c.reader_since,
    c.events_table, pipeline.log_floor(c.events_table) as floor,
    to_regclass(pipeline.events_relation(c.events_table)) is not null as table_exists,
    -- A trigger refuses the claim of a transaction that does not know of other events tables than the default one.
    set_config('pipeline.reads_events_tables', 'on', true) as reads_events_tables,
    (
        select l.pid from pipeline.advisory_locks l
        where l.key1 = 1346981969 and l.key2 = pg_catalog.hashtext(split_part(c.reader_session, ':', 1))
    ) as reader_pid
from pipeline.consumers c
where c.name = %(name)s
for no key update
