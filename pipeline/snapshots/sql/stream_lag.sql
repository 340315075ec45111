-- The position up to which the stream is staged, and about how many staged rows are not events yet.
select max(w.position) as position, coalesce((
    select sum(s.row_count) from pipeline.segments s join pipeline.shuffle_progress m on m.source_id = s.source_id
    where s.source_id = %(source)s and s.worker >= 0 and s.state in ('filling', 'full') and s.first_lsn > m.commit_lsn
), 0)::bigint + coalesce((
    select sum(t.last_seq - t.first_seq + 1) from pipeline.adopted_tables t
    where t.source_id = %(source)s and t.state = 'waiting'
), 0)::bigint as staged
from pipeline.reached_workers w where w.source_id = %(source)s
having count(*) > 0
