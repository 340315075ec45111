-- Split a range into steps of at most `events` events of all sources; returns the last seq of each step but the last.
select seq from (
    select seq, row_number() over (order by seq) as number from {events} where seq > %(after)s and seq <= %(upto)s
) e
where number %% %(events)s = 0 and seq < %(upto)s
order by seq
