-- Return the sequences that columns of these tables take values from: sequences that belong to a column, and sequences
-- that a default names. A table is found by its oid, or else by its name.
select w.number::int - 1 as "table", a.attname::text as column, sn.nspname::text as schema, s.relname::text as name,
    q.seqincrement as increment,
    pg_catalog.has_schema_privilege(sn.oid, 'usage') and pg_catalog.has_sequence_privilege(s.oid, 'select') as may_read,
    pg_catalog.has_schema_privilege(sn.oid, 'usage') and pg_catalog.has_sequence_privilege(s.oid, 'update') as may_set
from unnest(%(oids)s::bigint[], %(schemas)s::text[], %(names)s::text[]) with ordinality w (oid, schema, name, number)
join pg_catalog.pg_class t on t.relkind in ('r', 'p')
join pg_catalog.pg_namespace tn on tn.oid = t.relnamespace
    and (t.oid = w.oid or w.oid is null and (tn.nspname, t.relname) = (w.schema, w.name))
join pg_catalog.pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped
cross join lateral (
    select d.objid as oid from pg_catalog.pg_depend d
    where d.classid = 'pg_catalog.pg_class'::regclass and d.refclassid = 'pg_catalog.pg_class'::regclass
        and (d.refobjid, d.refobjsubid) = (t.oid, a.attnum) and d.deptype in ('a', 'i')
    union
    select d.refobjid from pg_catalog.pg_attrdef f
    join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_attrdef'::regclass and d.objid = f.oid
        and d.refclassid = 'pg_catalog.pg_class'::regclass
    where (f.adrelid, f.adnum) = (t.oid, a.attnum)
) u
join pg_catalog.pg_class s on s.oid = u.oid and s.relkind = 'S'
join pg_catalog.pg_namespace sn on sn.oid = s.relnamespace
join pg_catalog.pg_sequence q on q.seqrelid = s.oid
order by w.number, a.attnum, s.oid
