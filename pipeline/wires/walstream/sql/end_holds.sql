-- Delete holds whose time is over; return first the one that ended last.
with ended as (
    delete from pipeline.walstream_sessions where hold_seconds <= 0
    returning peer, unacknowledged, highest_seq, hold_seconds
)
select peer, unacknowledged, highest_seq from ended order by hold_seconds desc, highest_seq
