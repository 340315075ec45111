-- The newest runs; one whose session has ended counts as failed, whether or not that is recorded.
select r.id, r.trigger,
    case when lost.is_lost then 'failed' else r.state end as state,
    r.holder, r.log,
    case when lost.is_lost then 'its process ended' else r.reason end as reason,
    r.started_at, r.finished_at,
    extract(epoch from coalesce(r.finished_at, case when not lost.is_lost then now() end) - r.started_at)::float8 as seconds
from pipeline.export_runs r
cross join lateral (
    select r.state = 'running' and not exists (
        select from pipeline.advisory_locks l where l.key1 = %(lock)s and l.key2 = r.id
    ) as is_lost
) lost
where r.state = any(%(states)s)
order by r.id desc
limit %(limit)s
