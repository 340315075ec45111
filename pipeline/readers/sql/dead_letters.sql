-- Dead letters, the oldest first.
select row_to_json(letter)::text as letter, letter.*
from pipeline.dead_records(%(name)s::text) as letter
where letter.seq > %(after)s::bigint
order by letter.seq
limit %(limit)s::int
