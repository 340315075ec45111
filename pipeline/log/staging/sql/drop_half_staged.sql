-- Discard segments that lie entirely beyond the last complete transaction; the others take no further batch.
update pipeline.segments
set state = case when first_lsn is null or first_lsn > %(commit_lsn)s then 'drained' else 'full' end
where source_id = %(source)s and worker = %(worker)s and state in ('filling', 'full')
    and (state = 'filling' or last_lsn > %(commit_lsn)s)
returning id, state, last_lsn > %(commit_lsn)s as mixed, row_count
