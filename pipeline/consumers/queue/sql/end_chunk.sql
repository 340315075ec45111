-- The seq of the last of the next few events; no row where there are not so many.
select e.seq from {events} e where e.seq > %(after)s order by e.seq offset %(limit)s - 1 limit 1
