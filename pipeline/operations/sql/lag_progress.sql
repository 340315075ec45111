-- How far staging and the shuffle are in this epoch, and what the worker waited for when something was waiting.
select s.id as source_id, s.epoch, p.position as staged, p.commit_lsn as complete,
    case when h.epoch = s.epoch then h.commit_lsn else 0 end as watermark,
    l.moved_lsn as moved, l.starved, l.blocked, l.sending,
    extract(epoch from clock_timestamp() - l.measured_at)::float8 as load_age
from pipeline.sources s
join (
    select source_id, max(position) as position, max(commit_lsn) as commit_lsn from pipeline.reached_workers group by 1
) p on p.source_id = s.id
left join pipeline.shuffle_progress h on h.source_id = s.id
left join pipeline.worker_load l on l.source_id = s.id and l.epoch = s.epoch
where %(source)s::uuid is null or s.id = %(source)s::uuid
limit 1
