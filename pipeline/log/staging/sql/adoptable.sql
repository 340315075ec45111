-- The reason why a table of rows cannot become a partition of an events table as it is; null if it can. Anything that
-- would act on an inserted row is a reason, and anything that a partition has and such a table lacks.
select case
    when c.oid is null or c.relkind <> 'p' or pg_get_partkeydef(c.oid) <> 'RANGE (seq)' then 'it is not partitioned by seq'
    when exists (select from pg_partitioned_table p where p.partrelid = c.oid and p.partdefid <> 0)
        then 'it has a default partition'
    when exists (select from pg_trigger t where t.tgrelid = c.oid) then 'it has a trigger'
    when exists (select from pg_rewrite r where r.ev_class = c.oid) then 'it has a rule'
    when c.relrowsecurity then 'it has row security'
    when exists (select from pg_publication p where p.puballtables)
        or exists (select from pg_publication_rel r where r.prrelid = c.oid
            or r.prrelid in (select i.inhrelid from pg_inherits i where i.inhparent = c.oid))
        or exists (select from pg_publication_namespace n
            where n.pnnspid = c.relnamespace or n.pnnspid = to_regnamespace('pipeline')) then 'it is published'
    when exists (select from pg_constraint k where k.conrelid = c.oid and k.contype not in ('p', 'n'))
        then 'it has a constraint'
    when (select jsonb_object_agg(a.attname, format_type(a.atttypid, a.atttypmod))
        from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) <> %(columns)s::jsonb
        or exists (select from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            and (a.attgenerated <> '' or a.attidentity <> '')) then 'it has other columns'
    when (select array_agg(pg_get_indexdef(i.indexrelid, 0, false) ~ ' USING btree \(seq\)$' and i.indisprimary
            or pg_get_indexdef(i.indexrelid, 0, false)
                ~ ' USING btree \(source_database_id, source_table_oid, record_pk, seq\)$' and not i.indisunique
            order by i.indisprimary) from pg_index i where i.indrelid = c.oid) is distinct from '{t,t}'::boolean[]
        or not (select bool_and(i.indisvalid) from pg_index i where i.indrelid = c.oid) then 'it has other indexes'
end
from (select to_regclass(%(table)s::text) as oid) named left join pg_class c on c.oid = named.oid
