-- Return the epochs after this one, and if each of these tables is compared with the log in that epoch: then the log gets
-- the changes between the epochs. Pending: the comparison was asked for and has not begun.
select e.epoch, e.reason, e.started_at, t.oid as table_oid, coalesce(k.keyed, false) as keyed,
    coalesce(k.epoch = e.epoch and k.reread = 'differences', false) or exists (
        select from pipeline.backfills b
        where b.source_id = e.source_id and b.epoch = e.epoch and b.table_oid = t.oid and b.kind = 'differences'
            and b.relations is null and b.bounds is null and b.state not in ('failed', 'cancelled')
    ) as compared,
    coalesce(s.rereads_epoch = e.epoch, false) as pending
from pipeline.epochs e
join pipeline.sources s on s.id = e.source_id
cross join unnest(%(oids)s::bigint[]) t (oid)
left join pipeline.snapshot_tables k on k.source_id = e.source_id and k.table_oid = t.oid
left join pipeline.epochs b on b.source_id = e.source_id and b.epoch = e.epoch - 1
where e.source_id = %(source)s and e.epoch > %(epoch)s
    -- After pg_upgrade the source is another cluster, and an epoch begins where the one before it ended.
    and (b.system_identifier = e.system_identifier or e.previous_position <> e.from_lsn)
order by e.epoch, t.oid
