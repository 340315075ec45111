-- Tables whose values changed without an event and that nobody has settled, each once.
select r.table_schema || '.' || r.table_name as table, array_agg(distinct name order by name) as columns,
    array_agg(distinct r.kind order by r.kind) as kinds, max(r.from_lsn) as from_lsn, min(r.found_at) as found_at
from pipeline.rewrites r cross join unnest(r.columns) name
where r.settled_at is null
group by r.source_id, r.table_schema, r.table_name
order by 1
