-- Truncates of the leaves of captured partitioned tables in an events table: for each transaction that has one after seq
-- `after`, the last one of each leaf. `is_whole`: all leaves of that time were truncated, so the table was truncated, and
-- its rows before these seqs are gone. `since`: the seq where the search begins; `tables`: oids of tables or leaves, null
-- for all. A leaf that left counts until that is stored. A leaf that joined counts from its first row in the log, or from
-- the time when it was stored.
create or replace function pipeline.partition_truncates(
    events_table text, source uuid, after bigint, since bigint, tables bigint[])
returns table (epoch integer, root_oid bigint, leaf_oid bigint, commit_lsn bigint, commit_idx integer, seq bigint, is_whole boolean)
language plpgsql stable parallel safe set search_path = ''
-- The index still finds each leaf. With thousands of leaves, Postgres must hash the other joins, not compare pairs.
set enable_nestloop = off
as $$
begin
    return query execute format($query$
        with change as materialized (
            select c.root_oid, c.leaf_oid, c.epoch, c.seen_lsn, c.what,
                row_number() over (partition by c.root_oid, c.leaf_oid order by c.id) as place
            from pipeline.partition_changes c where c.source_id = $1 and c.what <> 'truncated'
        ), step as materialized (  -- the place from which on it is a leaf, or no leaf
            select c.root_oid, c.leaf_oid, -1 as epoch, -1::bigint as lsn, 0 as idx, c.what <> 'attached' as is_leaf
            from change c where c.place = 1
            union all
            select p.root_oid, p.leaf_oid, -1, -1, 0, true from pipeline.partitions p
            where p.source_id = $1 and not exists (
                select from change c where c.root_oid = p.root_oid and c.leaf_oid = p.leaf_oid)
            union all
            select r.table_oid, r.relation_oid, r.epoch, r.from_lsn, r.from_idx, true
            from pipeline.partition_looks k join pipeline.relations r
                on r.source_id = k.source_id and r.epoch = k.epoch and r.table_oid = k.root_oid
                    and r.id > k.after_relation and r.relation_oid <> r.table_oid
            where k.source_id = $1
            union all
            select c.root_oid, c.leaf_oid, c.epoch, c.seen_lsn, 0, c.what in ('attached', 'returned') from change c
        ), leaf as materialized (
            select distinct s.root_oid, s.leaf_oid from step s
            where $4 is null or s.root_oid in (
                select o.root_oid from step o where o.root_oid = any ($4) or o.leaf_oid = any ($4))
        ), last as materialized (  -- by the index, whatever the planner thinks of a table that is seldom analyzed
            select l.root_oid, l.leaf_oid, e.source_epoch as epoch, e.commit_lsn, max(e.commit_idx) as idx, max(e.seq) as seq
            from leaf l cross join lateral (
                select e.source_epoch, e.commit_lsn, e.commit_idx, e.seq from %1$s e
                where e.source_database_id = $1 and e.source_table_oid = l.leaf_oid and e.record_pk = '' and e.seq > $3
                    and e.action = 'truncate' and e.commit_lsn is not null
                offset 0
            ) e
            group by l.root_oid, l.leaf_oid, e.source_epoch, e.commit_lsn
        ), truncated as materialized (
            select l.root_oid, l.epoch, l.commit_lsn, min(l.idx) as idx from last l
            group by l.root_oid, l.epoch, l.commit_lsn having max(l.seq) > $2
        ), latest as (
            select distinct on (t.root_oid, t.epoch, t.commit_lsn, s.leaf_oid)
                t.root_oid, t.epoch, t.commit_lsn, s.leaf_oid, s.is_leaf
            from truncated t join step s
                on s.root_oid = t.root_oid and (s.epoch, s.lsn, s.idx) < (t.epoch, t.commit_lsn, t.idx)
            order by t.root_oid, t.epoch, t.commit_lsn, s.leaf_oid, s.epoch desc, s.lsn desc, s.idx desc
        ), member as materialized (
            select m.root_oid, m.epoch, m.commit_lsn, m.leaf_oid, l.idx, l.seq
            from latest m left join last l on l.root_oid = m.root_oid and l.leaf_oid = m.leaf_oid
                and l.epoch = m.epoch and l.commit_lsn = m.commit_lsn
            where m.is_leaf
        ), whole as (
            select m.root_oid, m.epoch, m.commit_lsn, bool_and(m.seq is not null) as is_whole,
                min(m.seq) as first_seq, max(m.seq) as last_seq
            from member m group by m.root_oid, m.epoch, m.commit_lsn
        ), verdict as materialized (
            select w.root_oid, w.epoch, w.commit_lsn, w.is_whole
                and not exists (  -- stored as a truncate of a partition, before an epoch began that knows only its own leaves
                    select from pipeline.partition_changes c
                    where c.source_id = $1 and c.root_oid = w.root_oid and c.what = 'truncated'
                        and c.epoch = w.epoch and c.seen_lsn = w.commit_lsn)
                and not exists (  -- rows between the truncates of one transaction may be there still
                    select from %1$s e where e.source_database_id = $1 and e.source_table_oid = w.root_oid
                        and e.seq > w.first_seq and e.seq < w.last_seq) as is_whole
            from whole w
        )
        select m.epoch, m.root_oid, m.leaf_oid, m.commit_lsn, m.idx, m.seq, v.is_whole
        from verdict v join member m on m.root_oid = v.root_oid and m.epoch = v.epoch and m.commit_lsn = v.commit_lsn
        where m.seq is not null$query$,
        pipeline.events_relation(events_table))
    using source, after, since, tables;
end $$;
revoke execute on function pipeline.partition_truncates(
    events_table text, source uuid, after bigint, since bigint, tables bigint[]) from public;
