-- Which columns and rows of a relation are published: of several publications all of both. No row: none publishes it.
select array_agg(distinct name) as columns,
    case when bool_or(p.rowfilter is null) then null else string_agg(distinct '(' || p.rowfilter || ')', ' or ') end as condition
from pg_catalog.pg_publication_tables p
join pg_catalog.pg_publication pub on pub.pubname = p.pubname and pub.pubinsert
left join lateral unnest(p.attnames::text[]) name on true
where p.pubname = any(%(publications)s) and (p.schemaname, p.tablename) in (
    select n.nspname, c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.oid = %(oid)s or c.oid in (select relid from pg_catalog.pg_partition_ancestors(%(oid)s::oid)))
having count(*) > 0
