-- The sessions of a source whose slots may exist, ended ones included, oldest first.
select id, slot, wire, source_id, epoch, system_identifier, state, made_after, position, created_at, used_at, reader,
    reader_since, reason, ended_at, dropped_at, address, used_for
from pipeline.sessions
where source_id = %(source_id)s and dropped_at is null
order by id
