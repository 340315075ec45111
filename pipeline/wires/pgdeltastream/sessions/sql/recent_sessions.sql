-- Every session that has not ended, oldest first; then, of the newest twenty, those that ended in the last day.
(select id, slot, wire, source_id, epoch, system_identifier, state, made_after, position, created_at, used_at, reader,
    reader_since, reason, ended_at, dropped_at, address, used_for
from pipeline.sessions
where state <> 'ended'
order by id)
union all
(select n.*
from (
    select id, slot, wire, source_id, epoch, system_identifier, state, made_after, position, created_at, used_at, reader,
        reader_since, reason, ended_at, dropped_at, address, used_for
    from pipeline.sessions
    order by id desc
    limit 20
) n
where n.state = 'ended' and n.ended_at > now() - interval '1 day'
order by n.ended_at desc)
