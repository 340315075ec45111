-- Find a consumer's position, filter and events table.
select kind, state, position, tables, actions, events_table,
    to_regclass(pipeline.events_relation(events_table)) is not null as table_exists
from pipeline.consumers where name = %(name)s::text
