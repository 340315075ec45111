-- Compare staged rows of a table, with deletes for keys without a row, with the log. Rows that the log lacks, that differ,
-- or whose last values are unknown get their action; the ordinals of all others are returned.
with form as materialized (
    select r.key_columns, r.columns from pipeline.relations r where r.id = %(relation)s
), staged as materialized (
    select s.ordinal, s.record_pk collate "C" as record_pk, s.action = 'delete' as gone, s.record::jsonb as record,
        case when s.exact is not null then (
            -- As in the log: only texts that jsonb does not return unchanged.
            select jsonb_object_agg(e.key, e.value) from jsonb_each_text(s.exact::jsonb) e
            where (s.record::jsonb -> e.key)::text is distinct from e.value or s.record::jsonb -> e.key = 'null'::jsonb
        ) end as exact
    from only {segment} s where s.ordinal between %(low)s and %(high)s and s.ordinal <> all(%(touched)s::bigint[])
), truncated as materialized (
    select max(place) filter (where whole) as certainly, max(place) as perhaps from (
    {truncates}
    ) t
), departed as materialized (
    select d.record_pk, max(d.place) as place from (
    select k.key as record_pk, array[k.value -> 0, k.value -> 1, k.value -> 2]::text[]::bigint[] as place
    from jsonb_each(%(departed)s::jsonb -> 'keys') k
    union all
    {departures}
    ) d group by d.record_pk
), skipped as materialized (
    select max(array[p.epoch, p.commit_lsn, 0]::bigint[]) as place from pipeline.source_stops p
    where p.source_id = %(source)s and p.skipped_at is not null
), found as (
    select s.ordinal, s.record, s.exact, s.gone, n.record as was, n.exact as was_exact, n.unchanged_columns,
        place.since is not null as known, n.place = place.since and n.action <> 'delete' as lives,
        -- The row may have been in a partition that was emptied, or its values could not be written.
        n.parked or coalesce(t.perhaps > place.since, false) as unsure,
        coalesce(k.place > place.since, k.place is not null) as skipped
    from staged s
    cross join truncated t cross join skipped k
    left join departed d on d.record_pk = s.record_pk
    left join lateral (
        select e.* from (
        {events}
        ) e order by e.place desc, e.seq desc limit 1
    ) n on true
    cross join lateral (select greatest(n.place, d.place, t.certainly) as since) place
), judged as materialized (
    select f.ordinal, differing.changes,
        case when f.gone then case when f.lives then 'delete' end
            when not coalesce(f.lives, false) then
                case when f.skipped or not (f.known or %(log_is_complete)s) then 'read' else 'insert' end
            when f.unsure then 'read'
            when differing.any then case when f.skipped then 'read' else 'update' end
        end as action
    from found f cross join form
    left join lateral (
        select true as any,
            jsonb_object_agg(c.key, f.was -> c.key) filter (where f.was ? c.key) as changes
        from jsonb_each(f.record) c
        where c.key <> all(form.key_columns) and (
            coalesce(f.was -> c.key, 'null')::text <> c.value::text or c.key = any(f.unchanged_columns)
            or f.was_exact ->> c.key is distinct from f.exact ->> c.key)
        having count(*) > 0
    ) differing on f.lives and not f.gone
), changed as (
    update only {segment} s
    set action = j.action, changes = case when j.action = 'update' then j.changes::text end,
        metadata = case when j.action <> 'read' then %(metadata)s end
    from judged j where s.ordinal = j.ordinal and j.action is not null
)
select ordinal from judged where action is null
