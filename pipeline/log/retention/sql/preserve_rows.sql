-- Copy to known_rows the values of rows' last events that a later update may leave out, before the events are dropped.
-- Postgres moves out no value of 24 bytes or less, and nothing of a row that is inserted with 2,000 bytes or less.
with page as materialized (
{page}
), last as materialized (
    select p.record_pk, e.source_epoch, e.commit_lsn, e.commit_idx, kept.record,
        case when e.exact is not null and kept.record is not null then (
            select jsonb_object_agg(x.key, x.value) from jsonb_each(e.exact) x where kept.record ? x.key) end as exact
    from page p
    join {part} e on e.seq = p.seq
    left join lateral (
        select jsonb_object_agg(v.key, v.value) as record from jsonb_each(e.record) v
        where v.value <> 'null' and v.key <> all(%(fixed)s)
            and not (v.key = any(%(plain)s) and octet_length(v.value #>> '{{}}') <= 20)
    ) kept on e.action in ('insert', 'update', 'read') and not coalesce(e.metadata ? 'parked', false)
        and not (e.action = 'insert' and e.unchanged_columns is null
            and octet_length(e.record::text) <= coalesce(%(narrow)s, -1))
    where e.commit_lsn is not null and e.source_epoch = %(epoch)s
        and not exists ({newer})
), forgotten as (
    -- By keys, not by a join: known_rows grows faster than its statistics.
    delete from pipeline.known_rows k
    where k.source_id = %(source)s and k.table_oid = %(oid)s
        and k.record_pk = any(array(select l.record_pk from last l where l.record is null))
        and (k.epoch, k.commit_lsn, k.commit_idx) <= (
            select l.source_epoch, l.commit_lsn, l.commit_idx from last l where l.record_pk = k.record_pk limit 1)
), carried as (
    insert into pipeline.known_rows as k (
        source_id, table_oid, record_pk, epoch, commit_lsn, commit_idx, record, exact)
    select %(source)s, %(oid)s, l.record_pk, l.source_epoch, l.commit_lsn, l.commit_idx, l.record, l.exact
    from last l where l.record is not null
    on conflict (source_id, table_oid, record_pk) do update
    set epoch = excluded.epoch, commit_lsn = excluded.commit_lsn, commit_idx = excluded.commit_idx,
        record = excluded.record, exact = excluded.exact
    where (k.epoch, k.commit_lsn, k.commit_idx) < (excluded.epoch, excluded.commit_lsn, excluded.commit_idx)
    returning 1
)
select count(*), min(p.record_pk), (select count(*) from carried) from page p
