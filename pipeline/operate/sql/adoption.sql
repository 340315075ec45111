-- The seq from which on a worker writes tables that become partitions, the numbers of waiting tables and of their events,
-- and the session for which they wait; no row if no worker writes and no table waits.
select case when p.generation = a.generation then a.from_seq end as from_seq, w.tables, w.events,
    case when w.tables > 0 then a.held_by end as held_by
from pipeline.adoptions a
join pipeline.replication_progress p on p.source_id = a.source_id and p.worker = 0
cross join lateral (
    select count(*)::integer as tables, coalesce(sum(t.last_seq - t.first_seq + 1), 0)::bigint as events
    from pipeline.adopted_tables t where t.source_id = a.source_id and t.state = 'waiting'
) w
where a.source_id = %(source)s and (w.tables > 0 or p.generation = a.generation and a.from_seq is not null)
