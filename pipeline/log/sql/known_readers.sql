-- Every reader of any events table, but for those that read it only as a help.
select kind, name from pipeline.readers where kind <> 'backfill'
