-- Captured tables; of those that the log has whole, or had in an earlier epoch, from which seqs on it has their changes.
select t.table_oid, t.told_seqs as from_seqs,
    coalesce(b.reason, t.reason) as reason
from pipeline.snapshot_tables t left join pipeline.backfills b on b.id = t.backfill_id
where t.source_id = %(source)s and t.captured
