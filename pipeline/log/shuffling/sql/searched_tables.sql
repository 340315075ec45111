-- List events tables that were ever written and still exist, and whether an index finds the history of a row in them.
select t.name, exists (
    select from pg_index i
    where i.indrelid = t.oid and i.indisvalid and i.indpred is null and (
        select array_agg(a.attname::text order by k.place) from unnest(i.indkey::int2[]) with ordinality k (attnum, place)
        join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
    )[:3] = array['source_database_id', 'source_table_oid', 'record_pk']) as indexed
from (
    select e.name, to_regclass(format('%%I.%%I', split_part(e.name, '.', 1), split_part(e.name, '.', 2))) as oid
    from pipeline.events_tables e where e.source_id = %(source)s
) t
where t.oid is not null
