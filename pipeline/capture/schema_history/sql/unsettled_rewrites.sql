-- Tables whose values changed without an event and that no user has settled, once each, with their current names.
-- `emptied`: also tables that had no rows when the rewrite was found, so that it was settled at once.
select v.table_schema || '.' || v.table_name as table, v.table_oid, array_agg(distinct r.id) as ids,
    array_agg(distinct name order by name) as columns, array_agg(distinct r.kind order by r.kind) as kinds,
    max(r.from_lsn) as from_lsn, min(r.found_at) as found_at
from pipeline.rewrites r cross join unnest(r.columns) name
cross join lateral (
    select v.table_oid, v.table_schema, v.table_name from pipeline.relations v
    where v.source_id = r.source_id and v.relation_oid = r.relation_oid order by v.id desc limit 1
) v
where (r.settled_at is null or %(emptied)s and r.settled_at = r.found_at and r.kind not in ('attributes', 'renamed'))
    and (%(source)s::uuid is null or r.source_id = %(source)s)
group by r.source_id, v.table_oid, v.table_schema, v.table_name
order by 1
