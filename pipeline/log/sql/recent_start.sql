-- Find the first event from a seq on: the number of seqs from it up to another seq, and the seconds since it arrived.
select pipeline.seqs_between(%(name)s, seq - 1, %(upto)s) as seqs, extract(epoch from clock_timestamp() - inserted_at)::float8 as seconds
from {events} where seq >= %(seq)s order by seq limit 1
