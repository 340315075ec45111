-- List the oids of all tables, whether they can be captured or not: a table that cannot be now may be later, and is
-- not new then.
select coalesce(array_agg(c.oid::bigint), '{}') from pg_catalog.pg_class c
where c.relkind in ('r', 'p') and c.relpersistence <> 't' and c.oid >= 16384
