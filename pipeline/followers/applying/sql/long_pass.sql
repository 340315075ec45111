-- Return a pass of many ordinary events: up to the end of its last transaction, or up to the number of events. No row if
-- an event needs next_pass. If a transaction is open, the pass ends with it: later transactions may need a version of a
-- table that was unknown when the open one began.
with followed as (
    select * from unnest({oids}::bigint[], {epochs}::integer[], {lsns}::bigint[]) as f (oid, epoch, lsn)
), copied as materialized (
    select c.oid, c.epoch, c.lsn, c.snapshot::pg_snapshot, pg_snapshot_xmax(c.snapshot::pg_snapshot)::text::bigint as next_xid
    from unnest({copied_oids}::bigint[], {copied_epochs}::integer[], {copied_lsns}::bigint[], {snapshots}::text[])
        as c (oid, epoch, lsn, snapshot)
), bound as materialized (
    select max(seq) as seq from (select seq from {events} where seq > {after} order by seq limit {most}) e
), next as materialized (
    select e.source_epoch, e.commit_lsn from {events} e
    where e.seq > (select seq from bound) and e.source_database_id = {source}
    order by e.seq limit 1
), first as materialized (
    select e.source_epoch, e.commit_lsn from {events} e
    where e.seq > {after} and e.source_database_id = {source}
    order by e.seq limit 1
), ending as (
    select e.seq from {events} e
    where e.seq > {after} and e.seq <= (select seq from bound) and e.source_database_id = {source}
        and case when {continues}
            then (e.source_epoch, e.commit_lsn) is not distinct from
                ((select f.source_epoch from first f), (select f.commit_lsn from first f))
            else (e.source_epoch, e.commit_lsn) is distinct from
                ((select n.source_epoch from next n), (select n.commit_lsn from next n)) end
        -- If all events belong to one transaction, nothing must be searched.
        and not exists (select from first f join next n on f.source_epoch = n.source_epoch and f.commit_lsn = n.commit_lsn)
    order by e.seq desc limit 1
), last as materialized (
    select e.seq, e.source_epoch, e.commit_lsn, e.committed_at, exists (select from ending) as whole
    from {events} e
    where e.seq > {after} and e.seq <= coalesce((select seq from ending), (select seq from bound))
        and e.source_database_id = {source}
    order by e.seq desc limit 1
), share as materialized (
    select e.source_table_oid as oid, f.oid is not null as followed,
        count(*) filter (where e.action in ('insert', 'update', 'delete', 'read') and not e.in_copy) as events,
        bool_and(e.action = 'insert' and e.metadata is null and not e.in_copy) as only_new,
        array_agg(e.seq) filter (where e.action = 'truncate' and not e.in_copy) as truncates,
        count(*) as all_events, sum(pg_column_size(e.record)) as size,
        bool_or(e.metadata ?| array['skipped', 'parked']) is true
            or max(e.source_epoch) > f.epoch or max(e.source_epoch) = f.epoch and max(e.commit_lsn) >= f.lsn as obstacle
    from (
        select e.*, {in_copy} as in_copy
        from (select * from {events} where seq > {after} and seq <= (select seq from last) offset 0) e
        left join copied c on c.oid = e.source_table_oid
        where e.source_database_id = {source}
    ) e
    left join followed f on f.oid = e.source_table_oid
    group by e.source_table_oid, f.oid, f.epoch, f.lsn
)
select l.seq as upto, l.whole, l.source_epoch, l.commit_lsn, l.committed_at,
    (f.source_epoch, f.commit_lsn) is distinct from (l.source_epoch, l.commit_lsn) as several,
    (select coalesce(sum(s.all_events), 0) from share s)::bigint as events,
    (select coalesce(sum(s.size), 0) from share s)::bigint as size,
    coalesce((select jsonb_agg(jsonb_build_array(s.oid, s.events, s.only_new, coalesce(s.truncates, '{{}}')))
              from share s where s.followed), '[]') as shares,
    ({history_number}) as history_number
from last l cross join first f
where l.source_epoch < {gap} and not exists (
    select from share s
    where s.obstacle or not s.followed and s.truncates is not null and s.oid = any({partitions}::bigint[])
)
