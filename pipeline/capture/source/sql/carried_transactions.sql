-- Transactions of the epoch before, with their commit time in µs since 2000.
select commit_lsn, (extract(epoch from committed_at - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint
from pipeline.carried_transactions
where source_id = %(source)s and commit_lsn >= %(from_lsn)s
