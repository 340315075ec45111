-- Return the number of the last rewrite before a position: all rewrites up to that number are before it. A rewrite without
-- an LSN counts as before the position if the server found it before `made_at`.
select coalesce(
    min(r.id) filter (where case when r.from_lsn is null then r.found_at > %(made_at)s
        else (r.epoch, r.from_lsn) > (%(source_epoch)s, coalesce(%(commit_lsn)s::bigint, 0)) end) - 1,
    max(r.id), 0)
from pipeline.rewrites r where r.source_id = %(source)s
