-- The first event from a seq on, and how many seconds ago it arrived.
select seq, extract(epoch from clock_timestamp() - inserted_at)::float8 as seconds
from {events} where seq >= %(seq)s order by seq limit 1
