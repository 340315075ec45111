-- Sessions of walstream's clients: those that are connected, and those that have ended and hold the position, or will.
select s.peer, s.server, s.since, s.sent_seq, s.unacknowledged, s.acknowledged_seq, s.ended_at, s.hold_seconds,
    s.ended_at is null and exists (
        select from pipeline.advisory_locks l
        where l.key1 = 1346981969 and l.key2 = pg_catalog.hashtext(split_part(s.claim, ':', 1))
    ) as connected
from pipeline.walstream_sessions s
order by s.id
