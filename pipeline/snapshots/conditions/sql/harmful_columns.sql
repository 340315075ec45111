-- Columns of a condition that the table lacks, or whose types may run functions of users. A composite type, a domain in
-- an array, or a range of a domain runs the checks of domains as soon as a literal is compared. The owner of a type may
-- have added a cast by a function of the owner, which Postgres applies by itself. Only superusers can make types with C
-- functions.
with recursive used as (
    select c.name, a.atttypid, a.attnum
    from pg_catalog.unnest(%(columns)s::pg_catalog.text[]) c (name)
    left join pg_catalog.pg_attribute a
        on a.attrelid = %(table)s::pg_catalog.oid and a.attname = c.name and a.attnum > 0 and not a.attisdropped
), types (name, oid, inner_part) as (
    select name, atttypid, false from used
    union
    select types.name, parts.oid, types.inner_part or t.typtype <> 'd'
    from types
    join pg_catalog.pg_type t on t.oid = types.oid
    left join pg_catalog.pg_range r on t.oid in (r.rngtypid, r.rngmultitypid)
    cross join lateral (values (t.typbasetype), (t.typelem), (r.rngsubtype)) parts (oid)
    where parts.oid <> 0
)
select distinct used.name, coalesce(pg_catalog.format_type(used.atttypid, null), '') as type
from used
where used.attnum is null
    or exists (
        select from types
        join pg_catalog.pg_type t on t.oid = types.oid
        where types.name = used.name and (
            t.typtype in ('c', 'p') or (t.typtype = 'd' and types.inner_part)
            or exists (
                select from pg_catalog.pg_cast c
                join pg_catalog.pg_proc p on p.oid = c.castfunc
                join pg_catalog.pg_language l on l.oid = p.prolang
                where t.oid in (c.castsource, c.casttarget) and t.oid >= 16384 and l.lanname not in ('internal', 'c')
            )
        )
    )
order by 1
