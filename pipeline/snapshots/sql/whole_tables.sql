-- Captured tables, with the seqs after which the log has all their changes, if the table is complete or was so in an
-- earlier epoch.
select t.table_oid, t.told_seqs as from_seqs,
    coalesce(b.reason, t.reason) as reason
from pipeline.snapshot_tables t left join pipeline.backfills b on b.id = t.backfill_id
where t.source_id = %(source)s and t.captured
