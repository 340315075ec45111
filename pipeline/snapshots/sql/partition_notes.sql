-- Tables whose log differs from the source because a user has accepted changes of partitions, and tables whose earlier
-- partitions are not known.
select t.table_schema || '.' || t.table_name as "table", t.keeps_partitions as always,
    coalesce(k.unknown and k.epoch = t.epoch, false) as unknown, (
        select count(*) from pipeline.partition_changes c
        where c.source_id = t.source_id and c.root_oid = t.table_oid and c.settled_as = 'kept') as kept
from pipeline.snapshot_tables t
left join pipeline.partition_looks k on k.source_id = t.source_id and k.root_oid = t.table_oid
where t.source_id = %(source)s and t.captured and (t.keeps_partitions or k.unknown and k.epoch = t.epoch
    or exists (select from pipeline.partition_changes c
        where c.source_id = t.source_id and c.root_oid = t.table_oid and c.settled_as = 'kept'))
order by 1
