-- The session of a wire with a slot name: the one that has not ended, else the one that ended last.
select id, slot, wire, source_id, epoch, system_identifier, state, made_after, position, created_at, used_at, reader,
    reader_since, reason, ended_at, dropped_at, address, used_for
from pipeline.sessions
where wire = %(wire)s and slot = %(slot)s
order by state = 'ended', id desc
limit 1
