-- The columns of a table. Values of types that every database has are in the same order everywhere, but for texts,
-- unless bytes decide that; labels of an enum are in the order of their own database.
select a.attname as name, pg_catalog.format_type(a.atttypid, -1) as type_name, a.atttypid::bigint as type_oid,
    a.attgenerated <> '' as generated, c.relkind = 'p' as partitioned,
    a.atttypid < 16384 and case
        when a.attcollation = 0 then true
        when a.attcollation in ('pg_catalog."C"'::regcollation, 'pg_catalog."POSIX"'::regcollation) then true
        when a.attcollation = 'pg_catalog."default"'::regcollation
            then d.datcollate in ('C', 'POSIX') and coalesce(to_jsonb(d) ->> 'datlocprovider', 'c') = 'c'
        else false
    end as sorts_alike,
    coalesce((
        select 'operator(' || pg_catalog.quote_ident(n.nspname) || '.' || o.oprname || ')'
        from pg_catalog.pg_index i
        cross join unnest(i.indkey::int2[]) with ordinality k (attnum, place)
        join pg_catalog.pg_opclass s on s.oid = i.indclass[k.place - 1]
        join pg_catalog.pg_amop m on m.amopfamily = s.opcfamily and m.amopstrategy = 3
            and m.amoplefttype = s.opcintype and m.amoprighttype = s.opcintype
        join pg_catalog.pg_operator o on o.oid = m.amopopr
        join pg_catalog.pg_namespace n on n.oid = o.oprnamespace
        where i.indrelid = c.oid and i.indisunique and k.attnum = a.attnum and k.place <= i.indnkeyatts
        order by i.indexrelid limit 1
    ), '=') as equals
from pg_catalog.pg_class c
join pg_catalog.pg_namespace s on s.oid = c.relnamespace
join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
join pg_catalog.pg_database d on d.datname = pg_catalog.current_database()
where s.nspname = %(schema)s and c.relname = %(name)s and c.relkind in ('r', 'p')
order by a.attnum
