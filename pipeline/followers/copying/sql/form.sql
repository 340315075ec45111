-- The form of a table, of these columns: number, type and modifier of each.
select coalesce(jsonb_agg(jsonb_build_array(a.attnum, a.atttypid::bigint, a.atttypmod) order by a.attnum), '[]')
from pg_catalog.pg_attribute a
where a.attrelid = %(oid)s::oid and a.attnum > 0 and not a.attisdropped and a.attname = any(%(columns)s::text[])
