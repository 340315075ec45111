-- The newest rewrite such that it and all before it come before a position of the log; or were found before, if no change
-- has come since.
select coalesce(
    min(r.id) filter (where case when r.from_lsn is null then r.found_at > %(made_at)s
        else (r.epoch, r.from_lsn) > (%(source_epoch)s, coalesce(%(commit_lsn)s::bigint, 0)) end) - 1,
    max(r.id), 0)
from pipeline.rewrites r where r.source_id = %(source)s
