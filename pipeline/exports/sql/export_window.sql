-- How far the lake in a directory is, how far the log is, and which process exports to the lake now.
with lake as (
    select id from pipeline.lakes where directory = %(directory)s order by created_at desc limit 1
), states_made as (
    select coalesce(max(finished_at), '-infinity') as upto from pipeline.export_runs where state = 'done'
), exported as (
    -- Of each table with a key, the last seq that was exported since the last successful run.
    select d.dataset, max((f.file ->> 'last_seq')::bigint) as seq
    from pipeline.exports e
    join lake on lake.id = e.lake_id
    cross join states_made
    cross join jsonb_array_elements(e.files) as f (file)
    cross join lateral (select f.file ->> 'dataset' as dataset, f.file ->> 'schema' as version) d
    where e.state = 'committed' and e.committed_at > states_made.upto
        and json_array_length(coalesce(e.schemas #> array[d.dataset, d.version, 'key'], '[]')) > 0
    group by 1
)
select (select coalesce(max(seq), 0) from {events}) as head,
    coalesce((
        select max(upto_seq) from pipeline.exports join lake on lake.id = lake_id where state = 'committed'
    ), 0) as exported_upto,
    exists (select from lake) as known,
    exists (
        select from exported x
        where not exists (
            select from pipeline.export_states s join lake on lake.id = s.lake_id
            where s.dataset = x.dataset and s.state = 'committed' and s.seq >= x.seq
        )
    ) as states_behind,
    (
        select coalesce((
            select e.holder from pipeline.exports e
            where e.lake_id = lake.id and e.state in ('writing', 'publishing') order by e.id desc limit 1
        ), a.application_name)
        from lake
        join pipeline.advisory_locks l on l.key = hashtextextended('pipeline lake ' || lake.id::text, 0)
        left join pg_stat_activity a on a.pid = l.pid
        limit 1
    ) as holder
