-- Request that the transaction that blocks the stream be skipped.
update pipeline.source_stops s set requested_at = coalesce(s.requested_at, clock_timestamp())
from pipeline.replication_progress p
where s.source_id = %(source)s and s.commit_lsn = %(commit_lsn)s and s.skipped_at is null
    and p.source_id = s.source_id and p.worker = 0 and p.epoch = s.epoch and p.position <= s.commit_lsn
