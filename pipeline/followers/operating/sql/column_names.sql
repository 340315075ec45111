-- Return the names of columns by table and number, in the order of numbers.
select a.attrelid::bigint, a.attnum::int, a.attname::text
from pg_catalog.pg_attribute a
where a.attrelid = any(%(oids)s::oid[]) and a.attnum > 0 and not a.attisdropped
order by a.attrelid, a.attnum
