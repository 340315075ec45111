-- Up to where a read goes that passes over at most so many events; null: there is none after.
select max(next.seq) as upto
from (select e.seq from pipeline.events e where e.seq > %(after)s::bigint order by e.seq limit %(span)s::int) as next
