-- Store that the ranges of a backfill, or its comparison, are planned.
update pipeline.backfills
set state = 'reading', reason = null, kind = %(kind)s, files = %(files)s, by_key = %(by_key)s,
    rows_estimated = %(rows)s, bytes_estimated = %(bytes)s, ranges_all = ranges_done + %(added)s,
    floor_seqs = %(floor_seqs)s
where id = %(id)s and state = 'waiting'
