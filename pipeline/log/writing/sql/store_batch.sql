-- Store the progress and the segment of a batch, in its transaction; no row if a newer worker has taken over.
with fenced as (
    {set_progress}
    where source_id = %(source)s and worker = %(worker)s and generation = %(generation)s
    returning 1
), filled as (
    update pipeline.segments
    set state = case when row_count + %(rows)s >= %(full_at)s then 'full' else 'filling' end,
        first_lsn = coalesce(first_lsn, %(first_lsn)s),
        last_lsn = %(last_lsn)s,
        first_ordinal = coalesce(first_ordinal, %(first_ordinal)s),
        row_count = row_count + %(rows)s
    where id = %(segment)s
    returning state
)
select (select state from filled) as state, pg_notify('pipeline_staged', '') from fenced
