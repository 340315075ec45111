-- Mark the staged event that stands for a skipped transaction.
update public.wal_events set metadata = %(metadata)s
where relation_id = %(relation)s and commit_lsn = %(commit_lsn)s
