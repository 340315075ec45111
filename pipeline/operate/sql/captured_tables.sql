-- The captured tables of a source, by name: since when, and if the log is complete.
select c.table_name as table, c.joined_at as since, coalesce(s.state, 'not read') as state, s.reason
from pipeline.captured_tables c
left join pipeline.snapshots s on s.source_id = c.source_id and s.table_oid = c.table_oid
where c.source_id = %(source)s and c.left_at is null
order by c.table_name
