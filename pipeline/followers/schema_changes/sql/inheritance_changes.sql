-- Return the last change of inheritance between each two of these tables that a check of the catalog found: since the
-- follower was added, or with `copy` none after the event at which it continues.
select distinct on (c.child_oid, c.parent_oid) c.child_oid, c.parent_oid, c.inherits, c.epoch, c.seen_lsn
from pipeline.inheritance c
left join lateral (
    select e.source_epoch, e.commit_lsn from pipeline.events e where e.seq <= %(made_seq)s order by e.seq desc limit 1
) b on %(copy)s = 'none'
where c.source_id = %(source)s and c.child_oid = any(%(oids)s) and c.parent_oid = any(%(oids)s)
    and (c.seen_at > %(made_at)s or %(copy)s = 'none' and c.seen_at is not null
        and (c.epoch, c.seen_lsn) > (coalesce(b.source_epoch, 0), coalesce(b.commit_lsn, 0)))
order by c.child_oid, c.parent_oid, c.id desc
