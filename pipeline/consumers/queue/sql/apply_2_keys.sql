-- Step 2 of applying the log: find, in the table versions, the key columns of the table when the event was written.
-- Only events whose key may have changed, or that have no key, get them.
versions as materialized (
    -- The key of each table version, and the part of the log in which that version was valid.
    select r.source_id, r.epoch, r.table_oid, r.key_columns, r.columns, r.from_lsn, r.from_idx,
        lead(r.from_lsn) over w as until_lsn, lead(r.from_idx) over w as until_idx
    from pipeline.relations r
    where r.table_oid = any (array(
        select distinct s.source_table_oid from seen s where s.changes is not null or not s.has_pk))
    window w as (partition by r.source_id, r.epoch, r.table_oid order by r.from_lsn, r.from_idx, r.id)
), keyed as materialized (
    select s.*, f.key_columns, f.columns
    from seen s
    left join versions f on (s.changes is not null or not s.has_pk)
        and f.source_id = s.source_database_id and f.epoch = s.source_epoch and f.table_oid = s.source_table_oid
        and (s.commit_lsn, s.commit_idx) >= (f.from_lsn, f.from_idx)
        and (f.until_lsn is null or (s.commit_lsn, s.commit_idx) < (f.until_lsn, f.until_idx))
)
