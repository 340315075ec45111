-- Whether all that is staged is in the log, and up to where it is; no row before the first shuffler has run.
select not exists (
        select from pipeline.segments g
        where g.source_id = s.source_id and g.state in ('filling', 'full') and g.last_lsn > s.commit_lsn)
    and not exists (
        select from pipeline.adopted_tables a where a.source_id = s.source_id and a.state = 'waiting'), s.commit_lsn
from pipeline.shuffle_progress s where s.source_id = %(source)s
