-- The columns of a table's key, in the order of `names`: as which type each is compared, and by which operators.
with recursive key as (
    select k.place, a.attname, a.attnum, a.atttypid
    from pg_catalog.unnest(%(names)s::pg_catalog.text[]) with ordinality k (name, place)
    join pg_catalog.pg_attribute a on a.attrelid = %(relation)s::pg_catalog.oid and a.attname = k.name and a.attnum > 0
        and not a.attisdropped
), part as (
    -- Goes from a domain to its base type, and from an array to its element, and ends at a type of Postgres itself.
    select key.place, key.atttypid as oid, 0 as depth, 0 as arrays, false as domain, false as inner_domain from key
    union all
    select part.place, case when t.typtype = 'd' then t.typbasetype else t.typelem end, part.depth + 1,
        part.arrays + case when t.typtype = 'd' then 0 else 1 end, part.domain or t.typtype = 'd' and part.arrays = 0,
        part.inner_domain or t.typtype = 'd' and part.arrays > 0
    from part join pg_catalog.pg_type t on t.oid = part.oid
    where t.oid >= 16384 and (t.typtype = 'd'
        or t.typelem <> 0 and t.typsubscript = 'pg_catalog.array_subscript_handler'::pg_catalog.regproc)
), found as (
    select distinct on (part.place) part.* from part order by part.place, part.depth desc
)
select key.attname as name,
    pg_catalog.format('%%I.%%I%%s', n.nspname, t.typname, case when found.arrays > 0 then '[]' end) as type,
    pg_catalog.format_type(key.atttypid, null) as declared,
    case when found.inner_domain then 'text' when found.domain then 'domain' else 'itself' end as form,
    case when found.arrays > 1 or found.arrays = 1 and t.oid < 16384 and t.typcategory = 'A' then 'is an array of arrays'
        -- Values would become text and then an array of that type; its owner may have declared a cast for that.
        when found.inner_domain and t.oid >= 16384 then 'is an array of a domain over another type of a user'
        when t.oid < 16384 or t.typtype in ('b', 'e') then ''
        when t.typtype = 'c' then 'is composite' when t.typtype = 'r' then 'is a range'
        when t.typtype = 'm' then 'is a multirange' else 'is of an unknown kind' end as refused,
    t.oid < 16384 or t.typtype = 'e' or found.arrays > 0 as standard,
    -- Postgres prefers an operator for exactly this type to any that the owner of the schema may have added.
    (select pg_catalog.array_agg(pg_catalog.format('%%I.%%s', s.nspname, o.oprname) order by m.amopstrategy)
        from pg_catalog.pg_amop m
        join pg_catalog.pg_operator o on o.oid = m.amopopr
        join pg_catalog.pg_namespace s on s.oid = o.oprnamespace
        where m.amopfamily = c.opcfamily and m.amoplefttype = t.oid and m.amoprighttype = t.oid
            and m.amopstrategy between 1 and 5 and m.amoppurpose = 's') as operators
from key
join found using (place)
join pg_catalog.pg_type t on t.oid = found.oid
join pg_catalog.pg_namespace n on n.oid = t.typnamespace
left join lateral (
    -- The operator class of an index that makes the key unique, otherwise the type's default.
    select c.opcfamily from pg_catalog.pg_opclass c
    join pg_catalog.pg_am on pg_am.oid = c.opcmethod and pg_am.amname = 'btree'
    left join (
        select u.opclass from pg_catalog.pg_index i
        cross join rows from (pg_catalog.unnest(i.indkey::pg_catalog.int2[]), pg_catalog.unnest(i.indclass::pg_catalog.oid[]))
            u (attnum, opclass)
        where i.indrelid = %(relation)s::pg_catalog.oid and i.indisunique and u.attnum = key.attnum
        order by i.indisprimary or i.indisreplident desc, i.indexrelid limit 1
    ) used on used.opclass = c.oid
    where c.opcintype = t.oid and (c.opcdefault or used.opclass is not null)
    order by used.opclass is null limit 1
) c on true
order by key.place
