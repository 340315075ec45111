-- Return the position up to which a source's log is applied to this follower.
select source_database_id as source, follower, source_epoch, seq, commit_lsn, committed_at, generation
from pipeline_follower.position
where source_database_id = %(source)s and follower = %(follower)s
