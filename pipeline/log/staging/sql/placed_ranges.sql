-- Read the range at this place, as the shuffler needs it.
select id, segment_id, keys is not null as of_keys, table_oid, snapshot::text as snapshot, since_seqs, by_key, rows_read, commit_lsn, committed_at, xid,
    relation_id, differences, departed
from pipeline.snapshot_ranges
where source_id = %(source)s and state = 'placed' and commit_lsn = %(commit_lsn)s
order by id
