-- The seq of the last of the next `limit` events; no row if fewer events follow.
select e.seq from {events} e where e.seq > %(after)s order by e.seq offset %(limit)s - 1 limit 1
