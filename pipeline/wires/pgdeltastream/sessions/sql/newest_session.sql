-- The newest session of a wire that can be used.
select id, slot, wire, source_id, epoch, system_identifier, state, made_after, position, created_at, used_at, reader,
    reader_since, reason, ended_at, dropped_at, address, used_for
from pipeline.sessions
where wire = %(wire)s and state = 'ready'
order by id desc
limit 1
