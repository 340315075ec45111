-- Read the relations that hold a table's rows and whose inserts are published, with their published columns and rows.
-- If several publications have a relation, the columns and rows of all of them count. Only the catalogs are read:
-- Postgres' own view opens every table that a publication has, and so waits for any session that locks one of them.
select c.oid::pg_catalog.int8 as oid, pg_catalog.format('%%I.%%I', n.nspname, c.relname) as name, published.columns,
    published.condition,
    pg_catalog.md5(pg_catalog.concat_ws(' ', c.relname, n.nspname, c.relreplident, (
        select pg_catalog.string_agg(pg_catalog.concat(a.xmin, ',', a.ctid), ' ' order by a.attnum)
        from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0
    ))) as shape
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
cross join lateral (
    select coalesce(
            pg_catalog.array_agg(distinct a.attname::pg_catalog.text) filter (where a.attname is not null), '{}') as columns,
        case when pg_catalog.bool_or(r.prqual is null) then null
            else pg_catalog.string_agg(
                distinct pg_catalog.concat('(', pg_catalog.pg_get_expr(r.prqual, r.prrelid), ')'), ' or ') end as condition
    from pg_catalog.pg_publication p
    -- The topmost table that the publication has: this table, or one that it is a partition of.
    cross join lateral (
        select m.oid from pg_catalog.pg_class m
        left join pg_catalog.pg_partition_ancestors(c.oid) with ordinality u (oid, place) on u.oid = m.oid
        where m.oid in (c.oid, u.oid) and (p.puballtables
            or exists (select from pg_catalog.pg_publication_rel r where r.prpubid = p.oid and r.prrelid = m.oid)
            or exists (select from pg_catalog.pg_publication_namespace s
                where s.pnpubid = p.oid and s.pnnspid = m.relnamespace))
        order by u.place desc nulls last limit 1
    ) top
    join pg_catalog.pg_class sent on sent.oid = case when p.pubviaroot then top.oid else c.oid end
    -- A list of columns and a filter do not hold if the publication also has the table without naming it.
    left join pg_catalog.pg_publication_rel r on r.prpubid = p.oid and r.prrelid = sent.oid and not p.puballtables
        and not exists (select from pg_catalog.pg_publication_namespace s
            where s.pnpubid = p.oid and s.pnnspid = sent.relnamespace)
    left join pg_catalog.pg_attribute a on a.attrelid = sent.oid and a.attnum > 0 and not a.attisdropped
        and case when r.prattrs is not null then a.attnum = any(r.prattrs::pg_catalog.int2[])
            else a.attgenerated = '' or a.attgenerated = 's' and pg_catalog.to_jsonb(p) ->> 'pubgencols' = 's' end
    where p.pubname = any(%(publications)s) and p.pubinsert
    having pg_catalog.count(*) > 0
) published
where c.relkind = 'r' and c.relpersistence = 'p'
    and (c.oid = %(oid)s or c.oid in (select relid from pg_catalog.pg_partition_tree(%(oid)s::pg_catalog.oid) where isleaf))
order by c.oid
