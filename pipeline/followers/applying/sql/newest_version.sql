-- The id of the newest version of any table of a source.
select coalesce(max(r.id), 0) from pipeline.relations r where r.source_id = %(source)s
