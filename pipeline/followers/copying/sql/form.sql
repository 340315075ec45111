-- The form of a relation, of these columns: name, type and modifier of each, by name.
select coalesce(jsonb_agg(
    jsonb_build_array(a.attname, a.atttypid::bigint, a.atttypmod) order by a.attname collate "C"
), '[]')
from pg_catalog.pg_attribute a
where a.attrelid = %(oid)s::oid and a.attnum > 0 and not a.attisdropped and a.attname = any(%(columns)s::text[])
