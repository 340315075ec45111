-- Begin a run: from now on no other session hands out a seq of this events table. No row if something staged is not in the
-- log yet, if another source writes the table too, if the first seq would be too high, or if another worker has taken over.
-- The caller has locked the watermark's row.
with log as (
    select l.id, l.events_table, l.routes from pipeline.routes l where l.source_id = %(source)s order by l.id desc limit 1
), ready as (
    select p.epoch, greatest(
        coalesce(pg_sequence_last_value(%(sequence)s::regclass), 0) + 1, coalesce(t.last_seq, 0) + 1, (
        select max(substring(pg_get_expr(c.relpartbound, c.oid) from 'TO \(''(\d+)''\)')::bigint)
        from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = %(table)s::regclass)) as from_seq,
        coalesce(t.events, 0) as events
    from pipeline.shuffle_progress s
    join pipeline.replication_progress p on p.source_id = s.source_id and p.worker = %(worker)s and p.epoch = s.epoch
    join log on log.events_table = %(name)s and log.routes = '[]'::jsonb
    left join pipeline.events_tables t on t.source_id = s.source_id and t.name = %(name)s
    where s.source_id = %(source)s and p.generation = %(generation)s
        and not exists (select from pipeline.segments g where g.source_id = s.source_id
            and g.state in ('filling', 'full') and g.last_lsn > s.commit_lsn
            and g.worker in (select r.worker from pipeline.reached_workers r where r.source_id = s.source_id))
        and not exists (select from pipeline.snapshot_ranges n where n.source_id = s.source_id
            and n.state = 'placed' and n.commit_lsn > s.commit_lsn)
        and not exists (select from pipeline.adopted_tables a where a.source_id = s.source_id and a.state = 'waiting')
        and not exists (select from pipeline.events_tables o where o.source_id <> s.source_id and o.name = %(name)s)
        and not exists (select from pipeline.dead_letters d where d.source_id = s.source_id and d.state = 'retrying')
)
insert into pipeline.adoptions as a (source_id, events_table, run, generation, from_seq)
select %(source)s, %(name)s, 1, %(generation)s, ready.from_seq from ready
where ready.from_seq <= %(highest)s
on conflict (source_id) do update
set events_table = excluded.events_table, run = a.run + 1, generation = excluded.generation, from_seq = excluded.from_seq,
    updated_at = now()
returning run, from_seq, (select epoch from ready), (select events from ready)
