-- Every session that has not ended, oldest first.
select id, slot, wire, source_id, epoch, system_identifier, state, made_after, position, created_at, used_at, reader,
    reader_since, reason, ended_at, dropped_at, address, used_for
from pipeline.sessions
where state <> 'ended'
order by id
