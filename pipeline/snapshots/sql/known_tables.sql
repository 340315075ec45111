-- Tables that are or were captured.
select table_oid, epoch, table_schema, table_name, joined, keyed, captured, backfill_id, complete_seq, reason, reread, key, members, since_lsn
from pipeline.snapshot_tables where source_id = %(source)s
