-- The newest event of a source in the log; 0 before the first.
select coalesce(
    (select seq from pipeline.events where source_database_id = %(source)s order by seq desc limit 1), 0
)
