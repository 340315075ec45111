-- Up to which transaction a worker is to stage as ever; 0 before the first run.
select coalesce(max(not_before), 0) from pipeline.adoptions where source_id = %(source)s
