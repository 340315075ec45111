-- Read the keys of versions that were recorded after another version, by the numbers of their columns; null: not
-- certain. For a partition, only the fact that it was one counts.
select r.id, r.relation_oid, r.from_lsn, r.relation_oid <> r.table_oid as partition, array(
        select (c ->> 'attnum')::integer from jsonb_array_elements(r.columns) c where (c ->> 'key')::boolean) as key
from pipeline.relations r
where r.source_id = %(source)s and r.epoch = %(epoch)s and r.id > %(after)s and r.relation_oid <> 0
order by r.id
