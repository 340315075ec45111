-- Whether the log has everything before an LSN, and how far it is staged and moved, to see whether it goes on.
select coalesce(max(s.commit_lsn) >= %(lsn)s
        or max(s.commit_lsn) >= max(p.commit_lsn) and max(p.position) >= %(lsn)s, false) as reaches,
    max(p.position) as position, max(s.commit_lsn) as moved
from pipeline.reached_workers p left join pipeline.shuffle_progress s using (source_id)
where p.source_id = %(source)s
