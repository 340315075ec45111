-- Read the last event up to a seq, and when it arrived.
select seq, inserted_at as at from {events} where seq <= %(upto)s order by seq desc limit 1
