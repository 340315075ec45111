-- Return a number that grows with each version of a table of a source, and with each rewrite that is found.
select coalesce((select max(r.id) from pipeline.relations r where r.source_id = %(source)s), 0)
    + coalesce((select max(r.id) from pipeline.rewrites r where r.source_id = %(source)s), 0)
