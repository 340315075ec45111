-- Columns of these relations that must be read and that this role may not read. Publications with a list of columns need the
-- listed columns and those of the row filter; others need all columns. Relations that are published whole, and of which the
-- role may read nothing, are left out. `listed`: some column need not be read. An oid of 0 is a role that does not exist.
with role as (
    select coalesce((select r.oid from pg_catalog.pg_roles r where r.rolname = %(role)s::pg_catalog.name), 0) as oid
)
select c.oid::pg_catalog.int8 as oid,
    pg_catalog.array_agg(a.attname::pg_catalog.text order by a.attnum) filter (where needed.it and not has.it) as columns,
    pg_catalog.bool_or(not needed.it) as listed
from role cross join pg_catalog.pg_class c
cross join lateral (
    select pg_catalog.array_agg(r.oid) as rels, pg_catalog.bool_and(r.prattrs is not null and not all_of.it) as lists
    from pg_catalog.pg_publication p
    cross join lateral (
        select p.puballtables or exists (select from pg_catalog.pg_publication_namespace s
            where s.pnpubid = p.oid and s.pnnspid = c.relnamespace) as it
    ) all_of
    left join pg_catalog.pg_publication_rel r on r.prpubid = p.oid and (
        r.prrelid = c.oid or r.prrelid in (select relid from pg_catalog.pg_partition_ancestors(c.oid)))
    where p.pubname = any (%(publications)s) and p.pubinsert and (r.oid is not null or all_of.it)
) named
join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
cross join lateral (
    select named.lists is not true or exists (
        select from pg_catalog.pg_depend d
        join pg_catalog.pg_attribute f on f.attrelid = d.refobjid and f.attnum = d.refobjsubid
        where d.classid = 'pg_catalog.pg_publication_rel'::pg_catalog.regclass and d.objid = any (named.rels)
            and d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and f.attname = a.attname
    ) as it
) needed
cross join lateral (select pg_catalog.has_column_privilege(role.oid, c.oid, a.attnum, 'select') as it) has
where c.oid = any (%(oids)s::pg_catalog.oid[])
    and (named.lists or pg_catalog.has_any_column_privilege(role.oid, c.oid, 'select'))
group by c.oid
