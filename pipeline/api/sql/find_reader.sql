-- What a consumer reads, and from where.
select kind, state, position, tables, actions, events_table,
    to_regclass(pipeline.events_relation(events_table)) is not null as is_there
from pipeline.consumers where name = %(name)s::text
