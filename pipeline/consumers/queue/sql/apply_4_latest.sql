-- Step 4 of applying the log: the last change of each item counts, unless its table was truncated since.
emptied as materialized (
    select i.source_table_oid, max(i.seq) as seq from items i where i.empties group by i.source_table_oid
), latest as (
    select distinct on (i.source_table_oid, i.record_pk, i.unkeyed) i.*, min(i.queued_seq) over w as first_seq,
        {known_group} as known_group
    from items i
    window w as (partition by i.source_table_oid, i.record_pk, i.unkeyed order by i.seq desc
        rows between unbounded preceding and unbounded following)
    order by i.source_table_oid, i.record_pk, i.unkeyed, i.seq desc
), barriers as materialized (
    select i.source_table_oid, i.seq from items i where i.action = 'truncate'
    union all
    select r.source_table_oid, r.seq from public.consumer_records r
    where r.consumer_id = %(consumer)s and r.action = 'truncate' and r.state <> 'dead'
), kept as materialized (
    -- Changes from before their table was truncated are dropped.
    select l.source_table_oid, l.record_pk, l.unkeyed, l.seq, l.commit_lsn, l.commit_idx, l.action, l.record,
        l.known_group,
        case when exists (select from barriers b where b.source_table_oid = l.source_table_oid
            and b.seq > l.first_seq and b.seq < l.seq) then l.seq else l.first_seq end as first_seq
    from latest l
    where not exists (select from emptied t where t.source_table_oid = l.source_table_oid and l.seq < t.seq)
)
