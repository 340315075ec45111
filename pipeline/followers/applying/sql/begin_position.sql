-- A follower begins there; one that has a position keeps it.
insert into pipeline_follower.position (source_database_id, follower, source_epoch, seq, commit_lsn, committed_at)
values (%(source)s, %(follower)s, %(source_epoch)s, %(seq)s, %(commit_lsn)s, %(committed_at)s)
on conflict (source_database_id, follower) do nothing
