-- End a registration, so that nothing more is applied for it. Waits for the applier's open transaction; an earlier
-- release stays.
update pipeline_follower.position
set released = coalesce(released, %(registration_id)s)
where source_database_id = %(source)s and follower = %(follower)s
returning source_database_id as source, follower, source_epoch, seq, commit_lsn, committed_at
