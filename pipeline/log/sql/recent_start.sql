-- How many seqs there are from the first event from a seq on up to another, and how many seconds ago that event arrived.
select pipeline.seqs_between(%(name)s, seq - 1, %(upto)s) as seqs, extract(epoch from clock_timestamp() - inserted_at)::float8 as seconds
from {events} where seq >= %(seq)s order by seq limit 1
