-- The newest ranges, or the one with an id, and their results.
select e.id, e.run_id, e.after_seq, e.upto_seq, e.state, e.rows, e.bytes,
    coalesce(jsonb_array_length(e.files), listed.files) as files, l.directory, e.holder, e.reason, e.started_at, e.committed_at,
    extract(epoch from e.committed_at - e.started_at)::float8 as seconds
from pipeline.exports e
join pipeline.lakes l on l.id = e.lake_id
cross join lateral (
    select (select count(*) from pipeline.export_files f where f.export_id = e.id and f.merged = 0) + (
        select count(*) from pipeline.export_files f
        where f.lake_id = e.lake_id and f.merged > 0 and f.last_seq > e.after_seq and f.first_seq <= e.upto_seq
            and e.state = 'committed'
    ) as files
) listed
where %(id)s::bigint is null or e.id = %(id)s
order by e.id desc
limit %(limit)s
