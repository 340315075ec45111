-- List dead letters in the order of the log, without their values.
select id, state, epoch as source_epoch, commit_lsn, commit_idx,
    concat_ws('.', nullif(table_schema, ''), table_name) as "table", action, record_pk,
    events_table, seq, retried_seq, cause, sqlstate, attempts, parked_at, updated_at
from pipeline.dead_letters
where %(state)s::text is null or state = %(state)s
order by epoch, commit_lsn, commit_idx, id
limit %(limit)s
