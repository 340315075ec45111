-- Record that this follower lacks a transaction, and why.
insert into pipeline_follower.skipped
    (source_database_id, follower, first_seq, last_seq, source_epoch, commit_lsn, committed_at, events, tables, reason)
values (%(source)s, %(follower)s, %(first_seq)s, %(last_seq)s, %(source_epoch)s, %(commit_lsn)s, %(committed_at)s,
    %(events)s, %(tables)s, %(reason)s)
