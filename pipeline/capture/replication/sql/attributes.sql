-- The attributes, by number, of composite types by the oids of their relations.
select attrelid::text, jsonb_object_agg(attnum, attname) from pg_catalog.pg_attribute
where attrelid = any(%(oids)s::oid[]) and attnum > 0 and not attisdropped
group by attrelid
