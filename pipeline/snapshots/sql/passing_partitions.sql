-- Leaves that the stream has met since leaves are stored, and that were never stored: events name only the table.
select distinct on (r.table_oid, r.relation_oid) r.table_oid, r.relation_oid,
    r.relation_schema || '.' || r.relation_name
from pipeline.partition_looks k
join pipeline.relations r on r.source_id = k.source_id and r.epoch = k.epoch and r.table_oid = k.root_oid
    and r.id > k.after_relation and r.relation_oid <> r.table_oid
where k.source_id = %(source)s and k.epoch = %(epoch)s
    and not exists (select from pipeline.partitions p
        where p.source_id = k.source_id and p.root_oid = k.root_oid and p.leaf_oid = r.relation_oid)
    and not exists (select from pipeline.partition_changes c
        where c.source_id = k.source_id and c.root_oid = k.root_oid and c.leaf_oid = r.relation_oid)
order by r.table_oid, r.relation_oid, r.id desc
