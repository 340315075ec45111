-- Return tables whose rows deleted in a gap are not in the log: since an epoch began they were read without a comparison,
-- or were compared with an incomplete log, which a complete comparison states as its reason.
select t.oid, max(e.epoch)
from pipeline.epochs e
cross join unnest(%(oids)s::bigint[]) t (oid)
where e.source_id = %(source)s and e.epoch > 0 and e.started_at > %(since)s and (
    exists (
        select from pipeline.snapshot_tables k
        where k.source_id = e.source_id and k.epoch = e.epoch and k.table_oid = t.oid and k.reread = 'asked'
    ) or exists (
        select from pipeline.backfills b
        where b.source_id = e.source_id and b.epoch = e.epoch and b.table_oid = t.oid
            and b.relations is null and b.bounds is null and (
            b.kind = 'asked' and b.gap_until is not null
            or b.kind = 'differences' and b.state = 'complete' and b.reason is not null
        )
    )
)
group by t.oid
order by t.oid
