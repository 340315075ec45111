-- The last seq of the next few events.
select max(seq) from (select e.seq from {events} e where e.seq > %(after)s order by e.seq limit %(limit)s) chunk
