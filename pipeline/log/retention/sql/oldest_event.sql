-- Read the first event from a seq on, and when it arrived. Below that seq there may be many deleted rows before a vacuum.
select seq, inserted_at as at from {events} where seq >= %(since)s order by seq limit 1
