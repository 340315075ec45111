-- The source with an id, or all of them.
select id, epoch, system_identifier, database_name, slot, publications, options
from pipeline.sources
where %(id)s::uuid is null or id = %(id)s::uuid
order by created_at
