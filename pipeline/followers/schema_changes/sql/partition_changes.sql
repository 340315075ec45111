-- Return partitions of these tables that joined or left, in order: since the follower was added, or with `copy` none after the
-- event at which it continues. `names`: the names that a partition had, the last one first. `is_reused`: another
-- partition has the last name now.
select c.id, c.root_oid, c.leaf_oid, c.what, c.epoch, c.seen_lsn,
    c.leaf_name || array(
        select r.relation_schema || '.' || r.relation_name from pipeline.relations r
        where r.source_id = c.source_id and r.relation_oid = c.leaf_oid order by r.id desc
    ) as names,
    exists (
        select from pipeline.partitions p
        where p.source_id = c.source_id and p.root_oid = c.root_oid and p.leaf_oid <> c.leaf_oid and p.leaf_name = c.leaf_name
    ) as is_reused
from pipeline.partition_changes c
left join lateral (
    select e.source_epoch, e.commit_lsn from pipeline.events e where e.seq <= %(made_seq)s order by e.seq desc limit 1
) b on %(copy)s = 'none'
where c.source_id = %(source)s and c.root_oid = any(%(roots)s) and c.what <> 'truncated'
    and (c.seen_at > %(made_at)s
        or %(copy)s = 'none' and (c.epoch, c.seen_lsn) > (coalesce(b.source_epoch, 0), coalesce(b.commit_lsn, 0)))
order by c.id
