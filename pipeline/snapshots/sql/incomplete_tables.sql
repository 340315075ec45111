-- Captured tables that are incomplete in the log and that no backfill reads, with the relations that hold their rows, as
-- far as the stream has named them.
select t.table_oid, array_agg(distinct coalesce(r.relation_oid, t.table_oid)) as relations, t.since_seqs,
    coalesce(t.since_lsn, 0) as since_lsn
from pipeline.snapshot_tables t
left join pipeline.relations r on r.source_id = t.source_id and r.epoch = t.epoch and r.table_oid = t.table_oid
where t.source_id = %(source)s and t.captured and t.complete_seq is null
    and not exists (select from pipeline.backfills b
        where b.source_id = t.source_id and b.table_oid = t.table_oid and b.state in ('waiting', 'reading', 'paused'))
group by t.table_oid, t.since_seqs, t.since_lsn
