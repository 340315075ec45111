-- The columns of a table, in their order; no row when it was dropped.
select a.attname::text from pg_catalog.pg_attribute a
where a.attrelid = %(oid)s::oid and a.attnum > 0 and not a.attisdropped
order by a.attnum
