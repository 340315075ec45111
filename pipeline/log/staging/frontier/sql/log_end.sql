-- Read the end of the log, and if anything staged is not in it yet; no row before the first shuffler has run.
select s.epoch, s.commit_lsn, r.id, r.events_table, r.routes = '[]'::jsonb as is_one_table,
    exists (
        select from pipeline.segments g
        where g.source_id = s.source_id and g.state in ('filling', 'full') and g.last_lsn > s.commit_lsn
    ) or exists (
        select from pipeline.adopted_tables a where a.source_id = s.source_id and a.state = 'waiting'
    ) or exists (
        select from pipeline.snapshot_ranges n
        where n.source_id = s.source_id and n.epoch = s.epoch and n.state = 'placed' and n.commit_lsn > s.commit_lsn
    ) as has_staged,
    coalesce(t.last_seq, 0)
from pipeline.shuffle_progress s
join pipeline.replication_progress p on p.source_id = s.source_id and p.worker = 0 and p.epoch = s.epoch
cross join lateral (
    select l.id, l.events_table, l.routes from pipeline.routes l where l.source_id = s.source_id order by l.id desc limit 1
) r
join pipeline.events_tables t on t.source_id = s.source_id and t.name = r.events_table
where s.source_id = %(source)s
