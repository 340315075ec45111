-- Events after a seq that match, in order, each as its JSON text; all of them that have the last one's seq.
select e.seq, row_to_json(e)::text as event
from pipeline.events e
where e.seq > %(after)s::bigint and e.seq <= %(upto)s::bigint
    and (%(tables)s::text[] is null or e.source_table_schema || '.' || e.source_table_name like any (%(tables)s::text[]))
    and (%(likes)s::text[] is null or e.source_table_schema || '.' || e.source_table_name like any (%(likes)s::text[]))
    and (%(actions)s::text[] is null or e.action = any (%(actions)s::text[]))
order by e.seq
fetch first (%(limit)s::int) rows with ties
