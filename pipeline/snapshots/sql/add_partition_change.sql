-- Store a change of a partition. If the user has accepted all changes in advance (keeps_partitions), it is settled at once.
insert into pipeline.partition_changes (source_id, epoch, root_oid, leaf_oid, leaf_name, what, bounds, seen_lsn, reason,
    in_doubt, settled_at, settled_as)
select %(source)s, %(epoch)s, %(root_oid)s, %(leaf_oid)s, %(leaf_name)s, %(what)s,
    coalesce(%(bounds)s::jsonb, (select p.bounds from pipeline.partitions p
        where p.source_id = %(source)s and p.root_oid = %(root_oid)s and p.leaf_oid = %(leaf_oid)s)),
    %(lsn)s, %(reason)s, %(in_doubt)s,
    case when s.settled is not null then now() end, s.settled
from (
    select coalesce(%(settled)s::text, case when %(what)s in ('detached', 'dropped') or %(reason)s::text is not null then (
        select case when t.keeps_partitions then 'kept' end from pipeline.snapshot_tables t
        where t.source_id = %(source)s and t.table_oid = %(root_oid)s) end) as settled
) s
