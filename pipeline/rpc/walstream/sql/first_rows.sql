-- Of which of these tables the rows that their first backfill has read are inserts for walstream's clients: the table
-- was created after the slot and after the consumer. `upto`: the last of these events; null: the backfill goes on.
select t.at, case when b.state in ('complete', 'failed', 'cancelled') then coalesce(b.last_seq, 0) end as upto
from unnest(%(sources)s::uuid[], %(epochs)s::int[], %(oids)s::bigint[]) with ordinality t (source_id, epoch, oid, at)
join pipeline.seen_tables s on (s.source_id, s.epoch, s.table_oid) = (t.source_id, t.epoch, t.oid)
join pipeline.consumers c on c.name = 'walstream' and c.created_at < s.first_seen_at
cross join lateral (
    select f.kind, f.state, f.last_seq from pipeline.backfills f
    where (f.source_id, f.epoch, f.table_oid) = (t.source_id, t.epoch, t.oid)
    order by f.id limit 1
) b
where b.kind = 'initial'
