-- Tables of these names to which another source's log is applied in this database.
select t.table_schema || '.' || t.table_name as table, t.follower, t.source_database_id as source, p.seq
from pipeline_follower.tables t
join pipeline_follower.position p using (source_database_id, follower)
join unnest(%(schemas)s::text[], %(names)s::text[]) w (schema, name) on (w.schema, w.name) = (t.table_schema, t.table_name)
where t.source_database_id <> %(source)s and p.released is null
order by 1
