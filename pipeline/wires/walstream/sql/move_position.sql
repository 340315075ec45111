-- Move the position to the lowest seq that a session or a hold has acknowledged; if there is none, to the highest one.
-- It never moves backwards.
select pipeline.advance('walstream', reached.seq, %(claim)s)
from (
    select coalesce(min(coalesce(s.acknowledged_seq, 0)), %(highest)s) as seq from pipeline.walstream_sessions s
) reached
where reached.seq > %(position)s
