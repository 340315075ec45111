-- Every source, with its epoch and its staged position.
select s.id::text as id, s.epoch, s.database_name as database, s.system_identifier as cluster, s.timeline, s.slot,
    array(select jsonb_object_keys(case s.published when '{}' then s.publications else s.published end) order by 1)
        as publications,
    p.position, e.started_at as since
from pipeline.sources s
left join pipeline.replication_progress p on p.source_id = s.id and p.worker = 0
left join pipeline.epochs e on e.source_id = s.id and e.epoch = s.epoch
order by s.created_at
