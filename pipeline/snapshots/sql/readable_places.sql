-- Of these relations, those in which this user may see the places of rows.
select c.oid::pg_catalog.int8 from pg_catalog.pg_class c
where c.oid = any (%s::pg_catalog.oid[]) and pg_catalog.has_column_privilege(c.oid, 'ctid', 'select')
