-- The files of one range, in the order in which they were published.
select f.file ->> 'path' as path, f.file ->> 'dataset' as dataset, (f.file ->> 'schema')::int as schema,
    (f.file ->> 'rows')::bigint as rows, (f.file ->> 'bytes')::bigint as bytes, f.file ->> 'sha256' as sha256,
    (f.file ->> 'first_seq')::bigint as first_seq, (f.file ->> 'last_seq')::bigint as last_seq
from pipeline.exports e
cross join jsonb_array_elements(e.files) with ordinality as f (file, place)
where e.id = %(id)s
order by f.place
