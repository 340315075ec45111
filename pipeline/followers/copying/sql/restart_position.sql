-- Let a follower begin at this position, no matter what an earlier follower of the same name has stored.
insert into pipeline_follower.position (source_database_id, follower, source_epoch, seq, commit_lsn, committed_at)
values (%(source)s, %(follower)s, %(source_epoch)s, %(seq)s, %(commit_lsn)s, %(committed_at)s)
on conflict (source_database_id, follower) do update
    set source_epoch = excluded.source_epoch, seq = excluded.seq, commit_lsn = excluded.commit_lsn,
        committed_at = excluded.committed_at, applied_at = excluded.applied_at,
        rewrites_upto = null, generation = position.generation + 1
