-- Return true if everything staged for reached workers is in the log, then the watermark, then true if the shuffler is at
-- work, for instance on a transaction that takes long. No row before the first shuffler has run.
select not exists (
        select from pipeline.segments g
        where g.source_id = s.source_id and g.state in ('filling', 'full') and g.last_lsn > s.commit_lsn
            and g.worker in (select r.worker from pipeline.reached_workers r where r.source_id = s.source_id))
    and not exists (
        select from pipeline.adopted_tables a where a.source_id = s.source_id and a.state = 'waiting'), s.commit_lsn,
    exists (
        select from pg_stat_activity a
        where a.datname = current_database() and a.application_name = 'pipeline shuffle' and a.state = 'active'
            and a.wait_event_type is distinct from 'Lock')
from pipeline.shuffle_progress s where s.source_id = %(source)s
