-- All sources that the log has events of.
select s.id, s.database_name from pipeline.sources s
