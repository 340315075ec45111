-- Return what a range of events makes of each row of a table. A *stay* is the time of a row under one key: it begins with
-- an insert or a change to this key, and ends with a delete or a change to another key. An update of the key leads from
-- one stay to the next, and such a chain of stays is one *life* of a row. Only the two ends of a life count, and the
-- row's values at its end.
-- If the log has complete old rows, a key may be deferrable, and two rows may share it for a while. Then all of its values
-- identify a row instead, and each update makes another row of it.
with recursive event as materialized (
    select e.seq, e.source_epoch, e.commit_lsn, e.commit_idx, {action} as action, e.record_pk, e.record, e.changes, e.exact,
        {left_pk} as left_pk, {lenient} as lenient{contents}
    from (
        -- Read the short range first: the index of a row's history would read all events of the table.
        select * from {events} where seq > {after} and seq <= {upto} offset 0
    ) e
    where e.source_database_id = {source} and e.source_table_oid = {table} and {counts}
), part as (
    select e.seq, {left} as pk, 'leave'::text as kind, e.lenient from event e where {left} is not null
    union all
    select e.seq, {known_by}, case when {left} is null then e.action when e.left_pk is null then 'become' else 'arrive' end,
        e.lenient
    from event e
), counted as materialized (
    select p.*, count(*) filter (where p.begins) over (partition by p.pk order by p.seq) as stay
    from (
        select q.*, q.kind in ('arrive', 'become') or q.kind = 'insert' and not q.lenient
            or coalesce(lag(q.kind) over (partition by q.pk order by q.seq) in ('delete', 'leave'), true) as begins
        from part q
    ) p
), stay as materialized (
    select c.pk, c.stay, min(c.seq) as first_seq, max(c.seq) as last_seq, (array_agg(c.kind order by c.seq))[1] as first_kind,
        (array_agg(c.kind order by c.seq desc))[1] as last_kind, (array_agg(c.lenient order by c.seq))[1] as lenient
    from counted c
    group by c.pk, c.stay
), life as (
    select s.first_seq as seq, s.first_kind = 'insert' and not s.lenient as is_new, s.lenient, false as moved,
        s.pk, s.stay, s.last_seq, s.last_kind
    from stay s where s.first_kind not in ('arrive', 'become')
    union all
    select l.seq, l.is_new, l.lenient, l.moved or s.first_kind = 'arrive', s.pk, s.stay, s.last_seq, s.last_kind
    from life l join stay s on s.first_kind in ('arrive', 'become') and s.first_seq = l.last_seq
    where l.last_kind = 'leave'
), incomplete as materialized (
    select l.seq from life l join event e on e.seq = l.last_seq
    where l.last_kind not in ('leave', 'delete') and not e.record ?& {names}
), merged as (
    -- A value that the last event leaves out comes from an earlier event.
    select l.seq, jsonb_object_agg(x.key, x.value order by e.seq) as row
    from life l
    join counted c on c.pk = l.pk and c.stay = l.stay and c.kind not in ('leave', 'delete')
    join event e on e.seq = c.seq
    cross join lateral jsonb_each({row}) x
    where l.seq in (select i.seq from incomplete i)
    group by l.seq
)
select case when l.last_kind = 'delete' then 'delete' when l.is_new then 'insert' when l.moved then 'move'
        when l.lenient and missing.columns is null then 'upsert' else 'update' end as operation,
    l.seq, missing.columns is null as whole,
    {element} as element
from life l
join event f on f.seq = l.seq
join event e on e.seq = l.last_seq
left join merged m on m.seq = l.seq
cross join lateral (select case when l.last_kind <> 'delete' then coalesce(m.row, {row}) end as row) r
cross join lateral (
    select case when not r.row ?& {columns} then array(select c from unnest({columns}) c where not r.row ? c) end as columns
) missing
where l.last_kind <> 'leave' and not (l.last_kind = 'delete' and l.is_new)
order by l.seq
