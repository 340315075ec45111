-- List ranges that are under way. `alive`: the session that reads the range exists. `passed`: the stream has passed the
-- point at which the range must have been placed, or the log is beyond its place.
select r.id, r.state, r.marker_xid::text as marker_xid, r.seen_lsn,
    exists (select from pg_stat_activity a where a.pid = r.reader_pid and a.backend_start = r.reader_start) as alive,
    coalesce(case r.state
        when 'staged' then r.seen_lsn <= (select max(w.position) from pipeline.reached_workers w
            where w.source_id = r.source_id)
        when 'placed' then r.commit_lsn <= (select s.commit_lsn from pipeline.shuffle_progress s
            where s.source_id = r.source_id and s.epoch = r.epoch)
    end, false) as passed
from pipeline.snapshot_ranges r
where r.source_id = %(source)s and r.state in ('reading', 'staged', 'placed')
order by r.id
