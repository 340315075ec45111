-- The schema and the label that a dump has for each part of these tables, with the oid of the table.
with tree as (
    select w.oid as root, c.oid, n.nspname, c.relname
    from unnest(%(oids)s::oid[]) w (oid)
    cross join lateral (
        select w.oid as relid union select t.relid::oid from pg_catalog.pg_partition_tree(w.oid) t
    ) t
    join pg_catalog.pg_class c on c.oid = t.relid
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
)
select l.root::bigint, l.schema::text,
    -- pg_dump prints line breaks in names as spaces.
    translate(l.label, E'\r\n', '  ')
from (
    select t.root, t.nspname as schema, t.relname::text as label from tree t
    union
    select t.root, t.nspname, c.relname from tree t
    join pg_catalog.pg_index i on i.indrelid = t.oid join pg_catalog.pg_class c on c.oid = i.indexrelid
    union
    select t.root, n.nspname, c.relname from tree t
    join pg_catalog.pg_depend d on d.refclassid = 'pg_catalog.pg_class'::regclass and d.refobjid = t.oid
        and d.classid = 'pg_catalog.pg_class'::regclass and d.deptype in ('a', 'i')
    join pg_catalog.pg_class c on c.oid = d.objid and c.relkind = 'S'
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    union
    select t.root, t.nspname, t.relname || ' ' || o.conname from tree t
    join pg_catalog.pg_constraint o on o.conrelid = t.oid
    union
    select t.root, t.nspname, t.relname || ' ' || a.attname from tree t
    join pg_catalog.pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped
) l
