-- Dead letters, the oldest first, with the LSN also as Postgres prints it, for people.
select row_to_json(shown)::text as letter, shown.*
from (
    select letter.*, ('0/0'::pg_lsn + letter.commit_lsn)::text as commit_lsn_text
    from pipeline.dead_records(%(name)s::text) as letter
    where letter.seq > %(after)s::bigint
    order by letter.seq
    limit %(limit)s::int
) as shown
order by shown.seq
