-- Return the same as fold_events for many events: sort them once without their records, and read needed records again.
with recursive event as materialized (
    select e.seq, {action} as action, e.record_pk, {left_pk} as left_pk, {lenient} as lenient{contents}, e.record ?& {names} as whole
    from (select * from {events} where seq > {after} and seq <= {upto} offset 0) e
    where e.source_database_id = {source} and e.source_table_oid = {table} and {counts}
), part as materialized (
    select e.seq, {left} as pk, 'leave'::text as kind, e.lenient, true as whole from event e where {left} is not null
    union all
    select e.seq, {known_by}, case when {left} is null then e.action when e.left_pk is null then 'become' else 'arrive' end,
        e.lenient, e.whole
    from event e
), bounded as (
    select p.*, coalesce(lead(p.begins) over w, true) as ends
    from (
        select q.*, q.kind in ('arrive', 'become') or q.kind = 'insert' and not q.lenient
            or coalesce(lag(q.kind) over w in ('delete', 'leave'), true) as begins
        from part q
        window w as (partition by q.pk order by q.seq)
    ) p
    window w as (partition by p.pk order by p.seq)
), stay as materialized (
    select * from (
        select b.pk, b.seq as first_seq, b.kind as first_kind, b.lenient, b.begins,
            case when b.ends then b.seq else lead(b.seq) over w end as last_seq,
            case when b.ends then b.kind else lead(b.kind) over w end as last_kind,
            case when b.ends then b.whole else lead(b.whole) over w end as whole
        from bounded b
        where b.begins or b.ends
        window w as (partition by b.pk order by b.seq)
    ) s
    where s.begins
), life as (
    select s.first_seq as seq, s.first_kind = 'insert' and not s.lenient as is_new, s.lenient, false as moved,
        s.pk, s.first_seq, s.last_seq, s.last_kind, s.whole
    from stay s where s.first_kind not in ('arrive', 'become')
    union all
    select l.seq, l.is_new, l.lenient, l.moved or s.first_kind = 'arrive', s.pk, s.first_seq, s.last_seq, s.last_kind, s.whole
    from life l join stay s on s.first_kind in ('arrive', 'become') and s.first_seq = l.last_seq
    where l.last_kind = 'leave'
), merged as (
    -- A value that the last event leaves out comes from an earlier event.
    select l.seq, jsonb_object_agg(x.key, x.value order by c.seq) as row
    from (
        select * from life
        where seq = any(array(select i.seq from life i where not i.whole and i.last_kind not in ('leave', 'delete')))
    ) l
    join part c on c.pk = l.pk and c.seq between l.first_seq and l.last_seq and c.kind not in ('leave', 'delete')
    cross join lateral jsonb_each((select {row} from {events} e where e.seq = c.seq)) x
    group by l.seq
)
select case when l.last_kind = 'delete' then 'delete' when l.is_new then 'insert' when l.moved then 'move'
        when l.lenient and missing.columns is null then 'upsert' else 'update' end,
    l.seq, not l.lenient, missing.columns{values}
from life l
join (
    -- Read a record that is stored out of line once, not for each value.
    select e.seq, e.source_epoch, e.commit_lsn, e.commit_idx, e.exact, e.record || '{{}}' as record
    from (select * from {events} where seq > {after} and seq <= {upto} offset 0) e
    where e.source_database_id = {source} and e.source_table_oid = {table}
    offset 0
) e on e.seq = l.last_seq
left join merged m on m.seq = l.seq
cross join lateral (
    select case when not m.row ?& {columns} then array(select c from unnest({columns}) c where not m.row ? c) end as columns
) missing
where l.last_kind <> 'leave' and not (l.last_kind = 'delete' and l.is_new)
