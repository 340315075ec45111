-- Truncates of partitions that one events table has since a seq: the log keeps their rows. One of all partitions, or
-- that names their table, is a truncate of the table, and settles what came before it. A truncate of a table that was
-- attached with rows after it is not one of a partition; a partition that joined after it is not missing in it.
with relation as materialized (
    select k.root_oid, p.leaf_oid, p.leaf_name, p.bounds, k.after_seqs, coalesce((
            select max(c.seen_lsn) from pipeline.partition_changes c
            where c.source_id = k.source_id and c.epoch = k.epoch and c.root_oid = k.root_oid
                and c.leaf_oid = p.leaf_oid and c.what in ('attached', 'returned')), 0) as joined_lsn
    from pipeline.partition_looks k join pipeline.partitions p on p.source_id = k.source_id and p.root_oid = k.root_oid
    where k.source_id = %(source)s and k.epoch = %(epoch)s
), named as (
    select r.* from relation r
    union all
    select distinct on (r.root_oid) r.root_oid, r.root_oid, '', null, r.after_seqs, 0 from relation r
), found as materialized (
    select n.*, e.seq, e.commit_lsn, bool_or(n.leaf_oid = n.root_oid) over every as names_root,
        count(*) filter (where n.joined_lsn < e.commit_lsn) over every as relations, (
            select count(*) from relation r where r.root_oid = n.root_oid and r.joined_lsn < e.commit_lsn) as leaves
    from named n
    cross join lateral (  -- by the index, whatever the planner thinks of a table that is seldom analyzed
        select e.seq, e.commit_lsn from {events} e
        where e.source_database_id = %(source)s and e.source_table_oid = n.leaf_oid and e.record_pk = ''
            and e.seq > %(after)s and e.seq > coalesce((n.after_seqs ->> %(name)s)::bigint, 0)
            and e.action = 'truncate' and e.source_epoch = %(epoch)s and e.commit_lsn is not null
        offset 0
    ) e
    window every as (partition by n.root_oid, e.commit_lsn)
), settled as (
    update pipeline.partition_changes c set settled_at = now(), settled_as = 'whole', settled_seq = f.seq
    from (select root_oid, commit_lsn, max(seq) as seq from found where names_root or relations >= leaves
        group by root_oid, commit_lsn) f
    where c.source_id = %(source)s and c.root_oid = f.root_oid and c.settled_at is null and c.seen_lsn <= f.commit_lsn
)
insert into pipeline.partition_changes (source_id, epoch, root_oid, leaf_oid, leaf_name, what, bounds, seen_lsn,
    events_table, seq)
select %(source)s, %(epoch)s, f.root_oid, f.leaf_oid, f.leaf_name, 'truncated', f.bounds, f.commit_lsn, %(name)s, f.seq
from found f
where not f.names_root and f.relations < f.leaves
    and not exists (select from pipeline.partition_changes c
        where c.source_id = %(source)s and c.root_oid = f.root_oid and c.leaf_oid = f.leaf_oid and (
            c.events_table = %(name)s and c.seq = f.seq
            or c.what in ('attached', 'returned') and c.settled_as is distinct from 'empty'
                and c.epoch = %(epoch)s and c.seen_lsn >= f.commit_lsn))
returning leaf_name
