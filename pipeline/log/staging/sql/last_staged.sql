-- Read the position, and the last transaction before it that has rows, with its commit time in µs since 2000.
select epoch, position, commit_lsn,
    (extract(epoch from committed_at - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint as committed_at
from pipeline.replication_progress
where source_id = %(source)s and worker = %(worker)s
