-- A transaction that is in the log, and that the slot may replay.
insert into pipeline.carried_transactions (source_id, commit_lsn, committed_at)
values (%(source)s, %(commit_lsn)s, timestamptz '2000-01-01 00:00:00+00' + %(committed_at)s * interval '1 microsecond')
