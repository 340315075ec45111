-- The ranges of a backfill are planned.
update pipeline.backfills
set state = 'reading', reason = null, files = %(files)s, by_key = %(by_key)s, rows_estimated = %(rows)s,
    bytes_estimated = %(bytes)s, ranges_all = ranges_done + %(added)s
where id = %(id)s and state = 'waiting'
