-- Insert staged rows that lack unchanged values as events, with the values that the last event of each row has.
insert into {events} (
    seq, source_database_id, source_epoch, commit_lsn, commit_idx, xid,
    source_table_oid, source_table_schema, source_table_name,
    record_pk, record, changes, exact, action, unchanged_columns, transaction_annotations, committed_at)
select
    w.seq, %(source)s, %(epoch)s, w.commit_lsn, w.commit_idx, w.xid,
    r.table_oid, r.table_schema, r.table_name,
    w.record_pk, w.record::jsonb || coalesce(found.record, '{{}}'), w.changes::jsonb,
    case when w.exact is not null or found.exact is not null then nullif(coalesce((
        -- Only texts that jsonb does not return unchanged.
        select jsonb_object_agg(e.key, e.value) from jsonb_each_text(w.exact::jsonb) e
        where (w.record::jsonb -> e.key)::text is distinct from e.value
            or w.record::jsonb -> e.key = 'null'::jsonb
    ), '{{}}') || coalesce(found.exact, '{{}}'), '{{}}') end,
    w.action, found.missing, w.transaction_annotations::jsonb, w.committed_at
from {rows} w
join pipeline.relations r on r.id = w.relation_id
left join jsonb_to_recordset(%(forms)s) form (id integer, places jsonb, names jsonb, settled bigint) on form.id = w.relation_id
left join lateral (
    select newest.record, newest.exact, holds.lsn as commit_lsn, holds.idx as commit_idx from (
        select e.* from jsonb_to_recordset(form.places) place (oid bigint, lsn bigint, idx integer)
        cross join lateral (
{sources}
        ) e
        -- If this epoch has no event of the row, the previous epoch's values are valid once its table was compared.
        where e.source_epoch = %(epoch)s and (e.commit_lsn, e.commit_idx) < (w.commit_lsn, w.commit_idx)
            or e.source_epoch < %(epoch)s and form.settled < w.commit_lsn
        order by e.source_epoch desc, e.commit_lsn desc, e.commit_idx desc
        limit 1
    ) newest
    cross join lateral (
        select case when newest.source_epoch = %(epoch)s then newest.commit_lsn else form.settled end as lsn,
            case when newest.source_epoch = %(epoch)s then newest.commit_idx else 0 end as idx
    ) holds
    -- After a truncate, a delete or a parked change, neither that event nor an older one has a valid value.
    where newest.is_row and (holds.lsn, holds.idx) >= (newest.since_lsn, newest.since_idx)
        -- Changes of a transaction that the source could not send are unknown.
        and not exists (
            select from pipeline.source_stops s
            where s.source_id = %(source)s and s.epoch = %(epoch)s and s.skipped_at is not null
                and s.commit_lsn between holds.lsn and w.commit_lsn)
) known on true
cross join lateral (
    select jsonb_object_agg(v.name, v.value) filter (where v.value <> 'null') as record,
        jsonb_object_agg(v.name, known.exact -> v.known_as)
            filter (where v.value <> 'null' and known.exact ? v.known_as) as exact,
        array_agg(v.name order by v.n) filter (where v.value is null or v.value = 'null') as missing
    from (
        select u.name, u.n, was.name as known_as, known.record -> was.name as value
        from jsonb_array_elements_text(w.unchanged_columns::jsonb) with ordinality u (name, n)
        left join lateral (
            select o.name from jsonb_to_recordset(form.names -> u.name) o (name text, lsn bigint, idx integer)
            where (o.lsn, o.idx) <= (known.commit_lsn, known.commit_idx)
            order by o.lsn desc, o.idx desc
            limit 1
        ) was on true
        offset 0
    ) v
) found
where w.ordinal = any(%(ordinals)s)
