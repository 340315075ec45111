-- Return the indexes and sequences of a table whose names another schema has already, to which the table moves.
select c.relname::text, c.relkind = 'S'
from pg_catalog.pg_class t
join pg_catalog.pg_namespace n on n.oid = t.relnamespace
join pg_catalog.pg_class c on c.relnamespace = t.relnamespace and (
    exists (select from pg_catalog.pg_index i where i.indrelid = t.oid and i.indexrelid = c.oid)
    or c.relkind = 'S' and exists (
        select from pg_catalog.pg_depend d
        where d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.objid = c.oid and d.deptype in ('a', 'i')
            and d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.refobjid = t.oid))
where n.nspname = %(schema)s and t.relname = %(name)s and exists (
    select from pg_catalog.pg_class o join pg_catalog.pg_namespace m on m.oid = o.relnamespace
    where m.nspname = %(target)s and o.relname = c.relname)
order by 1
