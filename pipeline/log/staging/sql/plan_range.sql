-- Add a range to read.
insert into pipeline.snapshot_ranges
    (source_id, epoch, backfill_id, relation_oid, table_oid, file, from_block, until_block, keys, compares,
    differences)
values (%(source)s, %(epoch)s, %(backfill)s, %(relation_oid)s, %(table_oid)s, %(file)s, %(from_block)s, %(until_block)s,
    %(keys)s, %(compares)s, %(differences)s)
