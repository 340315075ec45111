-- End a range earlier while it is being read; the rest becomes another range, which is read later.
with was as (
    select id, until_block from pipeline.snapshot_ranges where id = %(id)s
), first as (
    update pipeline.snapshot_ranges set until_block = %(at)s
    where id = %(id)s and token = %(token)s and state = 'reading'
    returning source_id, epoch, backfill_id, relation_oid, table_oid, file, id
)
insert into pipeline.snapshot_ranges
    (source_id, epoch, backfill_id, relation_oid, table_oid, file, from_block, until_block)
select f.source_id, f.epoch, f.backfill_id, f.relation_oid, f.table_oid, f.file, %(at)s, w.until_block
from first f join was w on w.id = f.id
