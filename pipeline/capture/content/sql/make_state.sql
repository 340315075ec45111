-- The rows of a table that the log has: of each its newest event and its checksum, null where the log cannot say all of
-- it; in parts of so many rows, by the order of their keys.
create temporary table content_state as
with change as (
    -- Checksums and keys instead of records: what is sorted is short.
    select e.record_pk, e.source, e.seq, e.source_epoch, e.commit_lsn, e.commit_idx, e.given_up, e.live,
        case when e.live then {checksum} end as checksum, case when e.live then array[{key_texts}] end as key_texts
    from (
{changes}
    ) e
), truncated as (
    -- All partitions in one transaction are the table.
    select t.source_epoch, t.commit_lsn, max(t.commit_idx) as commit_idx from (
{truncated}
    ) t
    group by t.source_epoch, t.commit_lsn
    having bool_or(t.source_table_oid = {table}) or count(distinct t.source_table_oid) >= {leaves}
), newest as (
    select distinct on (record_pk) * from change
    order by record_pk, source_epoch desc, commit_lsn desc nulls last, commit_idx desc nulls last, given_up, seq desc
)
select r.*, ((row_number() over (order by {key_names}) - 1) / {rows_per_part})::integer as part
from (
    select e.record_pk, e.source, e.seq, k.*, e.checksum
    from newest e cross join lateral (select {keys_of_texts}) k ({key_names})
    where e.live and not exists (
        select from truncated t where (t.source_epoch, t.commit_lsn, t.commit_idx)
            > (e.source_epoch, coalesce(e.commit_lsn, 0), coalesce(e.commit_idx, 0)))
    offset 0
) r
