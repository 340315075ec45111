-- The columns of a table. Every server sorts values in the same order, except texts that are not sorted by bytes.
select c.oid::bigint as relation, a.attname as name, a.attgenerated <> '' as generated, c.relkind = 'p' as partitioned,
    case
        when a.attcollation = 0 then true
        when a.attcollation in ('pg_catalog."C"'::pg_catalog.regcollation, 'pg_catalog."POSIX"'::pg_catalog.regcollation)
            then true
        when a.attcollation = 'pg_catalog."default"'::pg_catalog.regcollation
            then d.datcollate in ('C', 'POSIX')
                and coalesce(pg_catalog.to_jsonb(d) operator(pg_catalog.->>) 'datlocprovider', 'c') = 'c'
        else false
    end as sorts_alike
from pg_catalog.pg_class c
join pg_catalog.pg_namespace s on s.oid = c.relnamespace
join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
join pg_catalog.pg_database d on d.datname = pg_catalog.current_database()
where s.nspname = %(schema)s and c.relname = %(name)s and c.relkind in ('r', 'p')
order by a.attnum
