-- All versions of a table in one epoch, in the order in which they apply; for a partitioned table, also those of its
-- partitions. Columns have what casting needs, as one text, which is the same for most versions.
select r.from_lsn, r.from_idx, r.key_columns, (
        select jsonb_agg(jsonb_build_object('name', c -> 'name', 'type_name', c -> 'type_name',
            'domain_of', c -> 'domain_of', 'base_type_oid', c -> 'base_type_oid'))::text
        from jsonb_array_elements(r.columns) c) as columns
from pipeline.relations r
where r.source_id = %(source_id)s::uuid and r.epoch = %(epoch)s::int and r.table_oid = %(table_oid)s::bigint
order by r.from_lsn, r.from_idx, r.id
