-- The newest rewrite such that it and all older ones are before a position of the log. A rewrite without a place in the
-- log counts if the server found it before `made_at`.
select coalesce(
    min(r.id) filter (where case when r.from_lsn is null then r.found_at > %(made_at)s
        else (r.epoch, r.from_lsn) > (%(source_epoch)s, coalesce(%(commit_lsn)s::bigint, 0)) end) - 1,
    max(r.id), 0)
from pipeline.rewrites r where r.source_id = %(source)s
