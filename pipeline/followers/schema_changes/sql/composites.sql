-- Composite types in the values of a table with this oid, or of tables with these names; or the types with these names
-- or oids. Each has its attributes in order, with their types. `parts`: attributes by number, including dropped ones,
-- which have no name. `columns`: the tables and columns that contain the type.
with recursive given as (
    select c.oid, n.nspname, c.relname
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p') and n.nspname not in ('pg_catalog', 'information_schema')
        and (%(table)s::oid is null or c.oid = %(table)s)
        and (%(tables)s::text[] is null or n.nspname || '.' || c.relname = any(%(tables)s))
), held (oid, of_table, of_column) as (
    select a.atttypid, given.nspname || '.' || given.relname, a.attname::text
    from given join pg_catalog.pg_attribute a on a.attrelid = given.oid and a.attnum > 0 and not a.attisdropped
    join pg_catalog.pg_type t on t.oid = a.atttypid and (t.typtype in ('c', 'd', 'r', 'm') or t.typelem <> 0)
    union
    select next.oid, held.of_table, held.of_column
    from held join pg_catalog.pg_type t on t.oid = held.oid
    cross join lateral (
        select unnest(array[t.typelem, t.typbasetype]) as oid
        union all
        select r.rngsubtype from pg_catalog.pg_range r where t.oid in (r.rngtypid, r.rngmultitypid)
        union all
        select a.atttypid from pg_catalog.pg_attribute a
        where a.attrelid = t.typrelid and t.typrelid <> 0 and a.attnum > 0 and not a.attisdropped
    ) next
    where next.oid <> 0
)
select n.nspname::text as schema, t.typname::text as name, t.oid::bigint as oid, c.relkind <> 'c' as is_of_table,
    coalesce(array_agg(a.attname::text order by a.attnum) filter (where not a.attisdropped), '{}') as names,
    coalesce(array_agg(pg_catalog.format_type(a.atttypid, a.atttypmod) order by a.attnum)
        filter (where not a.attisdropped), '{}') as types,
    jsonb_object_agg(a.attnum, case when not a.attisdropped then a.attname end) as parts,
    (select coalesce(jsonb_agg(distinct jsonb_build_array(held.of_table, held.of_column)), '[]')
        from held where held.oid = t.oid) as columns
from pg_catalog.pg_type t
join pg_catalog.pg_namespace n on n.oid = t.typnamespace
join pg_catalog.pg_class c on c.oid = t.typrelid
join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0
where case when %(names)s::text[] is null then t.oid in (select held.oid from held)
    else n.nspname || '.' || t.typname = any(%(names)s) or t.oid::bigint = any(%(oids)s::bigint[]) end
group by t.oid, n.nspname, t.typname, c.relkind
order by n.nspname, t.typname
