-- Columns of a table, with the types under domains and of attributes, labels, and SQL for a key of what they refer to.
select a.attname::text as name, format_type(a.atttypid, a.atttypmod) as kind,
    case when t.typtype = 'd' then format_type(t.typbasetype, t.typtypmod) end as base,
    array(select format_type(p.atttypid, p.atttypmod) from pg_attribute p
        where p.attrelid = t.typrelid and p.attnum > 0 and not p.attisdropped order by p.attnum) as attributes,
    array(select l.enumlabel::text from pg_enum l where l.enumtypid in (t.oid, t.typelem)
        order by l.enumsortorder) as labels,
    not a.attnotnull as takes_null, a.atthasdef or a.attidentity <> '' as has_default,
    a.attgenerated <> '' as generated,
    exists (select from pg_index i where i.indrelid = a.attrelid and i.indisprimary and a.attnum = any(i.indkey))
        as in_key,
    (select format('(select %%I from %%s x order by md5(x::text) limit 1)', r.attname, f.confrelid::regclass)
        from pg_constraint f join pg_attribute r on r.attrelid = f.confrelid and r.attnum = f.confkey[1]
        where f.contype = 'f' and f.conrelid = a.attrelid and f.conkey[1] = a.attnum limit 1) as refers
from pg_attribute a join pg_type t on t.oid = a.atttypid
where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum
