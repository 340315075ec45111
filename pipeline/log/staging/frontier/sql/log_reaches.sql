-- Return true if the log has everything before an LSN of the source, then how far the source is staged and moved. The last
-- staged transaction may have no rows: then nothing waits, though the watermark lies before it.
select coalesce(p.moved >= %(lsn)s or p.position >= %(lsn)s
    and not exists (select from pipeline.segments g where g.source_id = %(source)s and g.worker >= 0
        and g.state in ('filling', 'full') and g.last_lsn > p.moved)
    and not exists (select from pipeline.adopted_tables a where a.source_id = %(source)s and a.state = 'waiting'
        and a.last_lsn > p.moved)
    and not exists (select from pipeline.snapshot_ranges r where r.source_id = %(source)s and r.state = 'placed'
        and r.commit_lsn > p.moved), false) as reaches, p.position, p.moved
from (
    select max(w.position) as position, max(s.commit_lsn) as moved
    from pipeline.reached_workers w left join pipeline.shuffle_progress s using (source_id)
    where w.source_id = %(source)s
) p
