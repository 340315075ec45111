-- Store truncates of partitions that one events table has since a seq: the log keeps the rows. A truncate of all
-- partitions, or of their table by its name, is a truncate of the table, and settles earlier changes. Truncates of a
-- partition that left and joined again afterwards are skipped, because that partition is compared.
with found as materialized (
    select t.root_oid, t.leaf_oid, t.commit_lsn, t.seq, t.is_whole
    from pipeline.partition_truncates(%(name)s, %(source)s, %(after)s, %(after)s, null) t
    join pipeline.partition_looks k on k.source_id = %(source)s and k.root_oid = t.root_oid and k.epoch = t.epoch
    where t.epoch = %(epoch)s and t.seq > coalesce((k.after_seqs ->> %(name)s)::bigint, 0)
    union all
    select k.root_oid, k.root_oid, e.commit_lsn, e.seq, true
    from pipeline.partition_looks k
    cross join lateral (  -- by the index, whatever the planner thinks of a table that is seldom analyzed
        select e.seq, e.commit_lsn from {events} e
        where e.source_database_id = %(source)s and e.source_table_oid = k.root_oid and e.record_pk = ''
            and e.seq > %(after)s and e.seq > coalesce((k.after_seqs ->> %(name)s)::bigint, 0)
            and e.action = 'truncate' and e.source_epoch = %(epoch)s and e.commit_lsn is not null
        offset 0
    ) e
    where k.source_id = %(source)s and k.epoch = %(epoch)s
), settled as (
    update pipeline.partition_changes c set settled_at = now(), settled_as = 'whole', settled_seq = f.seq
    from (select root_oid, commit_lsn, max(seq) as seq from found where is_whole group by root_oid, commit_lsn) f
    where c.source_id = %(source)s and c.root_oid = f.root_oid and c.settled_at is null and c.seen_lsn <= f.commit_lsn
)
insert into pipeline.partition_changes (source_id, epoch, root_oid, leaf_oid, leaf_name, what, bounds, seen_lsn,
    events_table, seq)
select %(source)s, %(epoch)s, f.root_oid, f.leaf_oid, p.leaf_name, 'truncated', p.bounds, f.commit_lsn, %(name)s, f.seq
from found f
join pipeline.partitions p on p.source_id = %(source)s and p.root_oid = f.root_oid and p.leaf_oid = f.leaf_oid
where not f.is_whole
    and not exists (select from found t where t.root_oid = f.root_oid and t.commit_lsn = f.commit_lsn and t.is_whole)
    and not exists (select from pipeline.partition_changes c
        where c.source_id = %(source)s and c.root_oid = f.root_oid and c.leaf_oid = f.leaf_oid and (
            c.events_table = %(name)s and c.seq = f.seq
            or c.what = 'returned' and c.epoch = %(epoch)s and c.seen_lsn >= f.commit_lsn))
returning leaf_name
