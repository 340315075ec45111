-- The rows of a table that the log has: for each its newest event and its checksum, null if the log lacks values of the
-- row. They are divided into parts by the order of their keys. Keys that were given up, and truncates, are read apart, so
-- that Postgres can read the many events with several workers.
create temporary table content_state as
with given_up as materialized (
    select g.record_pk, max(array[g.source_epoch, coalesce(g.commit_lsn, 0), coalesce(g.commit_idx, 0)]::bigint[]) as place
    from (
{given_up}
    ) g
    group by g.record_pk
), truncated as materialized (
    select t.source_epoch, t.commit_lsn, max(t.commit_idx) as commit_idx from (
{emptied}
    ) t
    group by t.source_epoch, t.commit_lsn
), change as (
    -- Checksums and keys instead of records, so that short rows are sorted.
    select e.record_pk, e.source, e.seq, e.source_epoch, e.commit_lsn, e.commit_idx, e.live,
        case when e.live then {checksum} end as checksum, case when e.live then array[{key_texts}] end as key_texts
    from (
{changes}
    ) e
), newest as (
    select distinct on (record_pk) * from change
    order by record_pk, source_epoch desc, commit_lsn desc nulls last, commit_idx desc nulls last, seq desc
)
select r.*, ((row_number() over (order by {key_names}) - 1) / {rows_per_part})::integer as part,
    row_number() over (order by {key_names}) % {rows_per_part} = 0 as ends_part
from (
    select e.record_pk, e.source, e.seq, k.*, e.checksum
    from newest e cross join lateral (select {keys_of_texts}) k ({key_names})
    where e.live and {within} and not exists (
        select from given_up g where g.record_pk = e.record_pk
            and g.place > array[e.source_epoch, coalesce(e.commit_lsn, 0), coalesce(e.commit_idx, 0)]::bigint[])
    -- If nothing was truncated, no row is checked.
    and (not exists (select from truncated) or not exists (
        select from truncated t where (t.source_epoch, t.commit_lsn, t.commit_idx)
            > (e.source_epoch, coalesce(e.commit_lsn, 0), coalesce(e.commit_idx, 0))))
    offset 0
) r
