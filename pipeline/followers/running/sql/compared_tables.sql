-- Return tables that are or were compared with the log in their source's epoch, and the seq from which the log is right;
-- null: the comparison has not ended. Before that seq, an event may change a row whose insert the log lacks.
select k.table_oid, k.epoch, k.complete_seq as right_from
from pipeline.snapshot_tables k
where k.source_id = %(source)s and k.captured and k.epoch > 0 and (k.reread = 'differences' or exists (
    select from pipeline.backfills b
    where b.source_id = k.source_id and b.epoch = k.epoch and b.table_oid = k.table_oid and b.kind = 'differences'
        and b.relations is null and b.bounds is null and b.state not in ('failed', 'cancelled')
))
