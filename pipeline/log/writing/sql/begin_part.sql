-- Read the epoch of the log, the number of events in this table, and the first seq that a part may use: the first of its
-- reserved seqs behind the rows that it has stored before, perhaps by another worker.
select p.epoch, coalesce(t.events, 0), greatest(%(first_seq)s, coalesce(pg_sequence_last_value(%(sequence)s::regclass), 0) + 1,
    coalesce((select max(a.last_seq) from pipeline.adopted_tables a where a.source_id = %(source)s), 0) + 1)
from pipeline.replication_progress p
left join pipeline.events_tables t on t.source_id = p.source_id and t.name = %(name)s
where p.source_id = %(source)s and p.worker = 0
