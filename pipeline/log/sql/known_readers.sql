-- Every reader of any events table.
select kind, name from pipeline.readers
