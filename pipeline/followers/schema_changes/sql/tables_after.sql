-- Return tables that have a version from after a place on, with the names of their newest versions. Detached partitions of
-- known tables are left out if they stay partitions at the follower.
select distinct on (r.table_oid) r.table_oid, r.table_schema, r.table_name
from pipeline.relations r
where r.source_id = %(source)s and r.table_oid <> 0 and r.table_oid <> all(%(known)s)
    and (r.epoch, r.from_lsn) > (%(source_epoch)s, coalesce(%(commit_lsn)s::bigint, 0))
    and not (%(partitions_stay)s and (
        exists (  -- no check of the catalog has found the change yet
            select from pipeline.partitions p
            where p.source_id = r.source_id and p.leaf_oid = r.table_oid and p.root_oid = any(%(known)s))
        or exists (
            select from pipeline.partition_changes c
            where c.source_id = r.source_id and c.leaf_oid = r.table_oid and c.root_oid = any(%(known)s)
                and c.what = 'detached')))
order by r.table_oid, r.id desc
