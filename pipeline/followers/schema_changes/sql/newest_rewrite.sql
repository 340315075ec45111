-- The newest rewrite of any table that was found at a source.
select coalesce(max(r.id), 0) from pipeline.rewrites r where r.source_id = %(source)s
