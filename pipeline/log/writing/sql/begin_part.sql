-- The epoch of the log, how many events this table of it has, and from which seq on a part may have its own: of those that
-- are reserved for it, the first behind what it has stored before, perhaps by another worker.
select p.epoch, coalesce(t.events, 0), greatest(%(first_seq)s, coalesce(pg_sequence_last_value(%(sequence)s::regclass), 0) + 1,
    coalesce((select max(a.last_seq) from pipeline.adopted_tables a where a.source_id = %(source)s), 0) + 1)
from pipeline.replication_progress p
left join pipeline.events_tables t on t.source_id = p.source_id and t.name = %(name)s
where p.source_id = %(source)s and p.worker = 0
