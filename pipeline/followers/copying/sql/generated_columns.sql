-- Columns of these relations that COPY takes only from a query.
select a.attrelid::bigint, a.attname::text from pg_catalog.pg_attribute a
where a.attrelid = any(%(oids)s::oid[]) and a.attnum > 0 and not a.attisdropped and a.attgenerated <> ''
