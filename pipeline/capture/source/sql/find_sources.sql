-- Find the source with an id, or all sources. A pipeline database of an older server may lack the newer columns.
select id, epoch, system_identifier, database_name, slot, publications, options,
    (to_jsonb(s) ->> 'timeline')::integer as timeline,
    coalesce(to_jsonb(s) -> 'published', '{}') as published,
    to_jsonb(s) ->> 'unmatched' as unmatched
from pipeline.sources s
where %(id)s::uuid is null or id = %(id)s::uuid
order by created_at
