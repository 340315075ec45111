-- Return the next events to apply together: up to the end of the last transaction that fits, or, if none fits, as many
-- events as fit. The pass ends before the first transaction with an obstacle, which is
-- * an event that stands for a change which the log does not have,
-- * an event of a table that must get another version first, or
-- * an epoch before which the log lacks changes.
-- Truncates of partitions are a pass by themselves, because no key tells which rows they deleted. Events that the copy of
-- their table contains do not count, and a transaction that the source could not send is no obstacle if all copies contain
-- it.
with followed as (
    select * from unnest({oids}::bigint[], {epochs}::integer[], {lsns}::bigint[], {idxs}::integer[])
        as f (oid, epoch, lsn, idx)
), copied as materialized (
    select c.oid, c.epoch, c.lsn, c.snapshot::pg_snapshot, pg_snapshot_xmax(c.snapshot::pg_snapshot)::text::bigint as next_xid
    from unnest({copied_oids}::bigint[], {copied_epochs}::integer[], {copied_lsns}::bigint[], {snapshots}::text[])
        as c (oid, epoch, lsn, snapshot)
), scanned as materialized (
    -- Events of all sources: with a filter, the planner would sort all later events instead of reading them in order.
    select r.*, count(*) over () > {most} as cut
    from (
        select seq, source_database_id, source_epoch, commit_lsn, commit_idx, xid, committed_at, source_table_oid, action,
            metadata, pg_column_size(record) as size
        from {events} where seq > {after} order by seq limit {most} + 1
    ) r
), page as materialized (
    select e.seq, e.source_epoch, e.commit_lsn, e.committed_at, e.source_table_oid, e.action,
        row_number() over w as number,
        coalesce(sum(e.size) over (w rows between unbounded preceding and 1 preceding), 0) as size_before,
        (lag(e.source_epoch) over w, lag(e.commit_lsn) over w) is distinct from (e.source_epoch, e.commit_lsn) as begins,
        -- If more events follow than were scanned, the end of the last one is unknown.
        (lead(e.source_epoch) over w, lead(e.commit_lsn) over w) is distinct from (e.source_epoch, e.commit_lsn)
            and (lead(e.seq) over w is not null or not e.cut) as ends,
        f.oid is not null as followed,
        e.action = 'truncate' and e.source_table_oid = any({partitions}::bigint[]) and not e.in_copy as of_partition,
        case when e.source_epoch >= {gap} then 'gap'
            when e.is_lacking then 'skipped'
            when f.oid is null then null
            when e.metadata ? 'parked' then 'parked'
            when (e.source_epoch, e.commit_lsn, e.commit_idx) >= (f.epoch, f.lsn, f.idx) then 'changed'
        end as obstacle
    from (
        select e.*, {in_copy} as in_copy,
            case when e.metadata ? 'skipped' then exists (
                select from followed f left join copied c on c.oid = f.oid where not {in_copy}
            ) end as is_lacking
        from scanned e left join copied c on c.oid = e.source_table_oid
    ) e
    left join followed f on f.oid = e.source_table_oid and not e.in_copy
    where e.source_database_id = {source}
    window w as (order by e.seq)
), numbered as materialized (
    select p.*, sum(p.begins::integer) over (order by p.seq) as transaction from page p
), bound as materialized (
    select
        min(n.transaction) filter (where n.obstacle is not null
            or n.begins and n.seq > {upto} and not (n.transaction = 1 and {continues})) as transaction,
        case when bool_or(n.of_partition and n.number = 1)
            then min(n.number) filter (where not n.of_partition) else min(n.number) filter (where n.of_partition) end as number
    from numbered n
), fitting as materialized (
    select n.* from numbered n cross join bound b
    where n.number <= {most} and (n.number = 1 or n.size_before < {bytes}) and n.transaction < coalesce(b.transaction, n.transaction + 1)
        and n.number < coalesce(b.number, n.number + 1) and (n.transaction = 1 or not {single})
), last as (
    select * from fitting where seq = (select coalesce(max(seq) filter (where ends), max(seq)) from fitting)
)
select l.seq as upto, l.ends as whole, l.source_epoch, l.commit_lsn, l.committed_at, l.transaction as transactions,
    (select count(*) from fitting f where f.seq <= l.seq) as events,
    (select coalesce(array_agg(distinct f.source_table_oid), '{{}}') from fitting f
     where f.seq <= l.seq and f.followed and f.action in ('insert', 'update', 'delete', 'read')) as tables,
    (select coalesce(array_agg(f.seq order by f.seq), '{{}}') from fitting f
     where f.seq <= l.seq and f.action = 'truncate' and (f.followed or f.of_partition)) as truncate_seqs,
    (select coalesce(array_agg(f.source_table_oid order by f.seq), '{{}}') from fitting f
     where f.seq <= l.seq and f.action = 'truncate' and (f.followed or f.of_partition)) as truncate_oids,
    o.obstacle, o.seq as obstacle_seq, o.source_table_oid as obstacle_oid,
    (select max(s.seq) from scanned s where s.cut and not exists (select from page)) as others_upto,
    ({history_number}) as history_number
from (select 1) one
left join last l on true
left join lateral (
    select n.* from numbered n
    where l.seq is null and n.obstacle is not null and n.transaction = 1
        and ({continues} or (select min(seq) from numbered) <= {upto})
    order by n.seq limit 1
) o on true
