-- Backfills of these tables whose rows walstream's clients get as inserts: the first backfill of a table, and each one of
-- partitions that joined, if the table or all of the partitions were created after the slot and after the consumer. Their
-- events are after one seq and up to another; null: the backfill still runs.
with asked as (
    select t.source_id, t.epoch, t.oid, t.at, c.created_at
    from unnest(%(sources)s::uuid[], %(epochs)s::int[], %(oids)s::bigint[]) with ordinality t (source_id, epoch, oid, at)
    join pipeline.consumers c on c.name = 'walstream'
)
select a.at, 0::bigint as after, case when b.state in ('complete', 'failed', 'cancelled') then coalesce(b.last_seq, 0) end as upto
from asked a
join pipeline.seen_tables s on (s.source_id, s.epoch, s.table_oid) = (a.source_id, a.epoch, a.oid)
    and s.first_seen_at > a.created_at
cross join lateral (
    select f.kind, f.state, f.last_seq from pipeline.backfills f
    where (f.source_id, f.epoch, f.table_oid) = (a.source_id, a.epoch, a.oid) and f.relations is null and f.bounds is null
    order by f.id limit 1
) b
where b.kind = 'initial'
union all
select a.at, least(f.first_seq - 1, (select min(seq::bigint) from jsonb_each_text(f.since_seqs) n (name, seq))),
    case when f.state in ('complete', 'failed', 'cancelled') then coalesce(f.last_seq, 0) end
from asked a
join pipeline.backfills f on (f.source_id, f.epoch, f.table_oid) = (a.source_id, a.epoch, a.oid)
    and f.relations is not null and f.kind = 'initial' and coalesce(f.first_seq, f.after_lsn) is not null
where not exists (
    select from unnest(f.relations) r (oid)
    left join pipeline.seen_tables s on (s.source_id, s.epoch, s.table_oid) = (a.source_id, a.epoch, r.oid)
    where s.first_seen_at is null or s.first_seen_at <= a.created_at)
