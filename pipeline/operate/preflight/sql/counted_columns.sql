-- Integer columns of an events table, except seq, that a sequence fills; its last value, and the greatest possible value.
select a.attname::text as name, format_type(a.atttypid, null) as type,
    coalesce(pg_sequence_last_value(s.seqrelid), 0) as last,
    least(s.seqmax, case a.atttypid when 'int2'::regtype then 32767 when 'int4'::regtype then 2147483647
        else 9223372036854775807 end) as most
from pg_attribute a
join (
    select d.refobjid as relid, d.refobjsubid as attnum, d.objid as sequence from pg_depend d
    where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass and d.deptype in ('a', 'i')
    union
    select f.adrelid, f.adnum, d.refobjid from pg_depend d
    join pg_attrdef f on f.oid = d.objid
    where d.classid = 'pg_attrdef'::regclass and d.refclassid = 'pg_class'::regclass
) c on c.relid = a.attrelid and c.attnum = a.attnum
join pg_sequence s on s.seqrelid = c.sequence
where a.attrelid = %(oid)s::oid and a.attname <> 'seq' and not a.attisdropped
order by a.attnum
