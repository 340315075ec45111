-- Nothing more is applied for this registration. A transaction that applies is waited for; a release that was is kept.
update pipeline_follower.position
set released = coalesce(released, %(registration)s)
where source_database_id = %(source)s and follower = %(follower)s
returning source_database_id as source, follower, source_epoch, seq, commit_lsn, committed_at
