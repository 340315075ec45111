-- Describe the relation with the name of an events table's sequence, and whether another column takes numbers from it.
select c.oid::bigint as oid, c.relkind::text as kind,
    exists (
        select from pg_depend d
        where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype in ('a', 'i')
            and d.refclassid = 'pg_class'::regclass
            and (d.refobjid, d.refobjsubid) <> (%(table)s::oid, (
                select a.attnum from pg_attribute a where a.attrelid = %(table)s::oid and a.attname = 'seq'))
    ) or exists (
        select from pg_depend d join pg_attrdef f on f.oid = d.objid
        join pg_attribute a on a.attrelid = f.adrelid and a.attnum = f.adnum
        where d.classid = 'pg_attrdef'::regclass and d.refclassid = 'pg_class'::regclass and d.refobjid = c.oid
            and (a.attname <> 'seq' or a.attrelid not in (
                select t.relid from pg_partition_tree(%(table)s::oid) t union all select %(table)s::oid))
    ) as of_others
from pg_class c
where c.oid = to_regclass(%(name)s)
