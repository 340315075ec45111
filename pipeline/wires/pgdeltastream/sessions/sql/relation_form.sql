-- The properties of a relation that only a rewrite of its rows can change, as one text.
select pg_catalog.concat_ws(' ', c.relpersistence, c.relam, (
    select pg_catalog.string_agg(pg_catalog.concat_ws(' ', a.attnum, a.atttypid, a.atttypmod, a.attgenerated,
        pg_catalog.pg_get_expr(d.adbin, d.adrelid)), ' ' order by a.attnum)
    from pg_catalog.pg_attribute a
    left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum and a.attgenerated <> ''
    where a.attrelid = c.oid and a.attnum > 0
))
from pg_catalog.pg_class c
where c.oid = %(oid)s
