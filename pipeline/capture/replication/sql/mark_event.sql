-- The staged event that stands for a transaction which was passed over says so.
update public.wal_events set metadata = %(metadata)s
where relation_id = %(relation)s and commit_lsn = %(commit_lsn)s
